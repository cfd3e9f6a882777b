#include "launch/process/guard.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <filesystem>
#include <set>

#include "base/net/socket.h"

namespace lockstep::launch {
namespace {

// A positive number adds the group, a negative one removes it. Smaller than PIPE_BUF, so that messages of several
// writers never mix.
using Message = pid_t;

void send_message(int fd, Message message) {
  while (::write(fd, &message, sizeof(message)) < 0 && errno == EINTR) {
  }
}

// Closes everything but `kept`: the guard must not keep a pipe or terminal of the launcher open.
void close_all_but(int kept) {
  if (kept > 0) ::close_range(0, static_cast<unsigned>(kept - 1), 0);
  ::close_range(static_cast<unsigned>(kept + 1), ~0U, 0);
}

[[noreturn]] void watch(int fd, const std::string& folder) {
  ::setsid();
  ::prctl(PR_SET_NAME, "lockstep-guard");
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE}) ::signal(signal, SIG_IGN);
  close_all_but(fd);
  std::set<pid_t> groups;
  Message message = 0;
  while (true) {
    const ssize_t got = ::read(fd, &message, sizeof(message));
    if (got < 0 && errno == EINTR) continue;
    if (got != static_cast<ssize_t>(sizeof(message))) break;
    if (message > 0) groups.insert(message);
    if (message < 0) groups.erase(-message);
  }
  for (const pid_t group : groups) ::kill(-group, SIGKILL);
  std::error_code ignored;
  std::filesystem::remove_all(folder, ignored);
  ::_exit(0);
}

}  // namespace

Result<Guard> Guard::start(const std::string& folder) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0)
    return Status(StatusCode::resource_exhausted,
                  fmt::format("cannot create a pipe for the guard: {}", errno_text(errno)));
  UniqueFd reader(ends[0]);
  UniqueFd writer(ends[1]);
  const pid_t pid = ::fork();
  if (pid < 0)
    return Status(StatusCode::resource_exhausted,
                  fmt::format("cannot create a process for the guard: {}", errno_text(errno)));
  if (pid == 0) {
    writer.reset();
    watch(reader.get(), folder);
  }
  return Guard(std::move(writer), pid);
}

Guard::~Guard() {
  if (!link_.valid()) return;
  ::kill(pid_, SIGKILL);  // while the link is open, so that it does nothing more; SIGKILL also ends a stopped process
  while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

void Guard::add(int fd, pid_t pgid) { send_message(fd, pgid); }

void Guard::remove(pid_t pgid) const { send_message(link_.get(), -pgid); }

}  // namespace lockstep::launch
