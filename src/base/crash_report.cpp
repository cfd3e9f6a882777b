#include "base/crash_report.h"

#include <cxxabi.h>
#include <execinfo.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <exception>
#include <string_view>
#include <typeinfo>

namespace lockstep {
namespace {

struct FatalSignal {
  int number;
  const char* name;
};
constexpr std::array<FatalSignal, 5> kFatalSignals = {{{SIGSEGV, "SIGSEGV (Segmentation fault)"},
                                                       {SIGBUS, "SIGBUS (Bus error)"},
                                                       {SIGFPE, "SIGFPE (Floating point exception)"},
                                                       {SIGILL, "SIGILL (Illegal instruction)"},
                                                       {SIGABRT, "SIGABRT (Aborted)"}}};

std::array<char, PATH_MAX> g_path;
bool g_for_torch = false;
std::terminate_handler g_next_terminate = nullptr;
std::atomic<pid_t> g_reporter{0};  // the thread that writes the report; 0: none yet
alignas(16) std::array<char, std::size_t{64} * 1024> g_signal_stack;

// Buffers text for a file without memory allocation: everything here may run in a signal handler.
class Writer {
 public:
  explicit Writer(int fd) : fd_(fd) {}
  ~Writer() { flush(); }
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;

  void raw(std::string_view text) {
    for (const char c : text) put(c);
  }
  // As part of a JSON string.
  void escaped(std::string_view text) {
    for (const char c : text) {
      if (c == '"' || c == '\\') put('\\');
      if (c == '\n')
        raw("\\n");
      else
        put(static_cast<unsigned char>(c) < 0x20 ? ' ' : c);
    }
  }
  void number(std::uint64_t value, int base = 10) {
    std::array<char, 24> digits{};
    const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value, base).ptr;
    raw({digits.data(), static_cast<std::size_t>(end - digits.data())});
  }
  void flush() {
    std::size_t sent = 0;
    while (sent < used_) {
      const ssize_t written = ::write(fd_, buffer_.data() + sent, used_ - sent);
      if (written < 0 && errno == EINTR) continue;
      if (written <= 0) break;
      sent += static_cast<std::size_t>(written);
    }
    used_ = 0;
  }

 private:
  void put(char c) {
    if (used_ == buffer_.size()) flush();
    buffer_[used_++] = c;
  }
  int fd_;
  std::array<char, 512> buffer_;
  std::size_t used_ = 0;
};

pid_t thread_id() { return static_cast<pid_t>(::syscall(SYS_gettid)); }

// True for the first thread that crashes. Another one waits here until the first ends the process, because ending it
// now would cut the report short. False for the same thread again (abort() after std::terminate).
bool begin_report() {
  pid_t none = 0;
  const pid_t self = thread_id();
  if (g_reporter.compare_exchange_strong(none, self)) return true;
  if (none == self) return false;  // it failed while it reported
  while (true) ::pause();          // until the thread that reports has ended the process
}

void write_backtrace(int fd) {
  std::array<void*, 64> frames;
  const int count = ::backtrace(frames.data(), static_cast<int>(frames.size()));
  ::backtrace_symbols_fd(frames.data(), count, fd);
}

// The cause in up to three parts: "type", ": ", "what".
void write_report(std::string_view first, std::string_view second, std::string_view third) {
  const int fd = ::open(g_path.data(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (fd < 0) return;
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  {
    Writer writer(fd);
    if (g_for_torch) {
      writer.raw("{\"message\": {\"message\": \"");
      for (const auto& part : {first, second, third}) writer.escaped(part);
      writer.raw("\", \"extraInfo\": {\"timestamp\": \"");
      writer.number(static_cast<std::uint64_t>(now.tv_sec));
      writer.raw("\"}}}\n");
    } else {
      writer.raw("time_ns ");
      writer.number(static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000U + static_cast<std::uint64_t>(now.tv_nsec));
      writer.raw("\n");
      for (const auto& part : {first, second, third}) writer.raw(part);
      writer.raw("\nbacktrace:\n");
    }
  }
  if (!g_for_torch) write_backtrace(fd);
  ::close(fd);
}

void on_fatal_signal(int signal, siginfo_t* info, void*) {
  const int saved = errno;
  if (begin_report()) {
    const char* name = "a fatal signal";
    for (const auto& known : kFatalSignals) {
      if (known.number == signal) name = known.name;
    }
    // si_code > 0: from the processor, so that there is an address; otherwise from a process.
    if (info->si_code > 0 && signal != SIGABRT) {
      std::array<char, 20> digits{};
      const auto address = reinterpret_cast<std::uintptr_t>(info->si_addr);
      const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), address, 16).ptr;
      write_report(name, " at address 0x", {digits.data(), static_cast<std::size_t>(end - digits.data())});
    } else {
      write_report(name, "", "");
    }
  }
  struct sigaction fatal {};
  fatal.sa_handler = SIG_DFL;
  ::sigaction(signal, &fatal, nullptr);
  ::raise(signal);  // delivered, with its default effect, when this handler returns
  errno = saved;
}

void report_exception() {
  const std::exception_ptr exception = std::current_exception();
  const std::type_info* const type = abi::__cxa_current_exception_type();
  if (exception == nullptr || type == nullptr) return;  // std::terminate without an exception: abort() will report
  if (!begin_report()) return;
  int status = 0;
  char* const readable = abi::__cxa_demangle(type->name(), nullptr, nullptr, &status);
  const std::string_view name = readable != nullptr ? readable : type->name();
  try {
    std::rethrow_exception(exception);
  } catch (const std::exception& error) {
    write_report(name, ": ", error.what());
  } catch (...) {
    write_report(name, "", "");
  }
  std::free(readable);
}

[[noreturn]] void on_terminate() {
  report_exception();
  if (g_next_terminate != nullptr) g_next_terminate();  // the standard library's prints what() and aborts
  std::abort();
}

void install() {
  const char* path = std::getenv("LOCKSTEP_ERROR_FILE");
  if (path == nullptr || *path == '\0') {
    path = std::getenv("TORCHELASTIC_ERROR_FILE");
    g_for_torch = true;
  }
  if (path == nullptr || *path == '\0' || std::strlen(path) >= g_path.size()) return;
  std::strcpy(g_path.data(), path);
  // The first call loads a library and allocates; the one in the handler must not.
  std::array<void*, 1> frame{};
  ::backtrace(frame.data(), 1);
  // So that the main thread can still report after a stack overflow.
  const stack_t stack{.ss_sp = g_signal_stack.data(), .ss_flags = 0, .ss_size = g_signal_stack.size()};
  stack_t present{};
  if (::sigaltstack(nullptr, &present) == 0 && (present.ss_flags & SS_DISABLE) != 0) ::sigaltstack(&stack, nullptr);

  for (const auto& fatal : kFatalSignals) {
    struct sigaction action {};
    if (::sigaction(fatal.number, nullptr, &action) != 0 || action.sa_handler != SIG_DFL) continue;
    action = {};
    action.sa_sigaction = on_fatal_signal;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    ::sigaction(fatal.number, &action, nullptr);
  }
  g_next_terminate = std::set_terminate(on_terminate);
}

[[maybe_unused]] const bool g_at_load_time = [] {
  install_crash_reporter();
  return true;
}();

}  // namespace

void install_crash_reporter() {
  static const bool done = [] {
    install();
    return true;
  }();
  static_cast<void>(done);
}

}  // namespace lockstep
