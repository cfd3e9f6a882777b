#include "launch/process/stop_signals.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <ctime>

namespace lockstep::launch {
namespace {

constexpr std::int64_t kSameSignalNs = 200'000'000;

// Written by the handler, which may run in any thread.
std::atomic<int> g_first{0};
std::atomic<std::int64_t> g_first_ns{0};
std::atomic<bool> g_impatient{false};
std::atomic<int> g_event{-1};
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<std::int64_t>::is_always_lock_free);

void on_signal(int signal) {
  const int saved = errno;
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  const std::int64_t now_ns = static_cast<std::int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
  int none = 0;
  if (g_first_ns.load() == 0) g_first_ns.store(now_ns);
  if (!g_first.compare_exchange_strong(none, signal) && now_ns - g_first_ns.load() >= kSameSignalNs)
    g_impatient.store(true);
  const std::uint64_t one = 1;
  static_cast<void>(::write(g_event.load(), &one, sizeof(one)));
  errno = saved;
}

}  // namespace

StopSignals::StopSignals() : event_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  g_first = 0;
  g_first_ns = 0;
  g_impatient = false;
  g_event = event_.get();
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGPIPE, SIGXFSZ}) {
    struct sigaction before {};
    ::sigaction(signal, nullptr, &before);
    if (before.sa_handler == SIG_IGN) continue;
    saved_.push_back({signal, before});
    struct sigaction action {};
    action.sa_handler = signal == SIGPIPE || signal == SIGXFSZ ? SIG_IGN : on_signal;
    action.sa_flags = SA_RESTART;
    ::sigaction(signal, &action, nullptr);
  }
}

StopSignals::~StopSignals() {
  for (const Saved& saved : saved_) ::sigaction(saved.signal, &saved.action, nullptr);
  g_event = -1;
}

void StopSignals::clear_fd() const {
  std::uint64_t count = 0;
  static_cast<void>(::read(event_.get(), &count, sizeof(count)));
}

int StopSignals::first() { return g_first.load(); }

bool StopSignals::impatient() { return g_impatient.load(); }

}  // namespace lockstep::launch
