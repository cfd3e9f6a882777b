#include "base/process_state.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdio>

#include "base/net/socket.h"
#include "base/small_file.h"
#include "base/unique_fd.h"

namespace lockstep {
namespace {

struct ProcessStat {
  char state = '?';
  unsigned flags = 0;
  std::int64_t started = 0;
};

// proc(5). The name in parentheses may itself contain blanks and parentheses.
std::optional<ProcessStat> read_stat(std::int64_t pid) {
  const auto text = read_small_file(fmt::format("/proc/{}/stat", pid));
  if (!text.ok() || !*text) return std::nullopt;
  const auto name_end = (*text)->rfind(") ");
  if (name_end == std::string::npos) return std::nullopt;
  ProcessStat stat;
  long long started = 0;
  const int fields = std::sscanf((*text)->c_str() + name_end + 2,
                                 "%c %*d %*d %*d %*d %*d %u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %lld",
                                 &stat.state, &stat.flags, &started);
  if (fields != 3) return std::nullopt;
  stat.started = started;
  return stat;
}

UniqueFd open_process(std::int64_t pid) {
  return UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, static_cast<pid_t>(pid), 0)));
}

// A descriptor of a process is readable once all of its threads have ended.
bool is_readable(const UniqueFd& process, int timeout_ms) {
  pollfd entry{process.get(), POLLIN, 0};
  return ::poll(&entry, 1, timeout_ms) > 0;
}

}  // namespace

ProcessIdentity this_process() {
  const auto self = find_process(::getpid());
  return self.value_or(ProcessIdentity{.pid = ::getpid()});
}

std::optional<ProcessIdentity> find_process(std::int64_t pid) {
  const auto stat = read_stat(pid);
  if (!stat) return std::nullopt;
  return ProcessIdentity{.pid = pid, .started = stat->started};
}

std::string process_space() {
  const auto machine = read_small_file("/proc/sys/kernel/random/boot_id");
  std::array<char, PATH_MAX> target{};
  const auto size = ::readlink("/proc/self/ns/pid", target.data(), target.size());
  if (!machine.ok() || !*machine || (*machine)->empty() || size <= 0) return "";
  return (*machine)->substr(0, (*machine)->find('\n')) + "/" +
         std::string(target.data(), static_cast<std::size_t>(size));
}

bool has_ended(const ProcessIdentity& process) {
  const UniqueFd fd = open_process(process.pid);
  if (!fd.valid()) return errno == ESRCH;
  // The descriptor refers to whichever process has the pid now; only after opening it is that known.
  const auto found = find_process(process.pid);
  if (process.started != 0 && found && found->started != process.started) return true;
  return is_readable(fd, 0);
}

Status end_process(const ProcessIdentity& process, Deadline deadline) {
  const UniqueFd fd = open_process(process.pid);
  if (!fd.valid() && errno == ESRCH) return {};
  const auto cannot = [&](const std::string& why) {
    return Status(StatusCode::unavailable, fmt::format("process {} cannot be ended: {}", process.pid, why));
  };
  if (!fd.valid()) return cannot(errno_text(errno));
  const auto found = find_process(process.pid);
  if (process.started != 0 && found && found->started != process.started) return {};
  if (::syscall(SYS_pidfd_send_signal, fd.get(), SIGKILL, nullptr, 0) != 0 && errno != ESRCH) {
    return cannot(errno_text(errno));
  }
  while (!is_readable(fd, deadline.poll_timeout_ms())) {
    if (deadline.expired()) return cannot("it does not react to SIGKILL; the kernel or a disk holds it up");
  }
  return {};
}

std::string process_state(std::int64_t pid) {
  const auto stat = read_stat(pid);
  // The kernel closes connections before the process becomes a zombie; this flag (PF_EXITING) is set by then.
  constexpr unsigned kExiting = 0x4;
  const bool ended = !stat || stat->state == 'Z' || stat->state == 'X' || (stat->flags & kExiting) != 0;
  return ended ? "its process has ended" : "its process still exists";
}

}  // namespace lockstep
