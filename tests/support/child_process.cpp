#include "support/child_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <system_error>
#include <utility>

namespace lockstep::testing {
namespace {

[[noreturn]] void fail(const std::string& what, int error = errno) {
  throw std::system_error(error, std::generic_category(), what);
}

struct Pipe {
  UniqueFd read_end;
  UniqueFd write_end;

  Pipe() {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) fail("pipe2");
    read_end.reset(ends[0]);
    write_end.reset(ends[1]);
    ::fcntl(read_end.get(), F_SETFL, O_NONBLOCK);
  }
};

void drain(UniqueFd& stream, std::string& text) {
  std::array<char, 16384> block{};
  while (stream.valid()) {
    const ssize_t got = ::read(stream.get(), block.data(), block.size());
    if (got > 0) {
      text.append(block.data(), static_cast<std::size_t>(got));
    } else if (got == 0 || errno != EINTR) {
      if (got == 0 || errno != EAGAIN) stream.reset();
      return;
    }
  }
}

std::vector<char*> pointers(std::vector<std::string>& strings) {
  std::vector<char*> result;
  for (auto& text : strings) result.push_back(text.data());
  result.push_back(nullptr);
  return result;
}

}  // namespace

std::string ExitStatus::to_string() const {
  if (signal == 0) return fmt::format("exit code {}", code);
  return fmt::format("killed by signal {} ({})", signal, ::strsignal(signal));
}

bool ChildProcess::send_signal(int signal) const {
  // A system call, here and below, because glibc 2.36 declares its wrappers without extern "C".
  return ::syscall(SYS_pidfd_send_signal, pid_fd.get(), signal, nullptr, 0) == 0;
}

void ChildProcess::update() {
  pollfd polled{pid_fd.get(), POLLIN, 0};
  const bool has_ended = !status && ::poll(&polled, 1, 0) == 1;
  // After the check of the process: what a dead one wrote is in the pipe by now.
  for (std::size_t i = 0; i < streams.size(); ++i) drain(streams[i], text[i]);
  if (has_ended) status = reap();
}

ExitStatus ChildProcess::reap() const {
  siginfo_t info{};
  while (::waitid(P_PIDFD, static_cast<id_t>(pid_fd.get()), &info, WEXITED) != 0 && errno == EINTR) {
  }
  ExitStatus result;
  result.when = Deadline::Clock::now();
  (info.si_code == CLD_EXITED ? result.code : result.signal) = info.si_status;
  return result;
}

ChildProcess spawn(const ChildCommand& command) {
  std::vector<std::string> arguments = command.arguments;
  std::vector<std::string> variables;
  for (const auto& [name, value] : command.environment) {
    if (value) variables.push_back(name + "=" + *value);
  }
  Pipe out;
  Pipe err;
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, out.write_end.get(), STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, err.write_end.get(), STDERR_FILENO);
  // Onto itself: clears close-on-exec in the child only.
  for (const int fd : command.fds) posix_spawn_file_actions_adddup2(&actions, fd, fd);

  ChildProcess child;
  const int error = ::posix_spawnp(&child.pid, arguments.front().c_str(), &actions, nullptr, pointers(arguments).data(),
                                   pointers(variables).data());
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) fail("posix_spawn of " + arguments.front(), error);
  child.pid_fd.reset(static_cast<int>(::syscall(SYS_pidfd_open, child.pid, 0)));
  if (!child.pid_fd.valid()) {
    const int reason = errno;
    ::kill(child.pid, SIGKILL);
    ::waitpid(child.pid, nullptr, 0);
    fail("pidfd_open", reason);
  }
  child.streams = {std::move(out.read_end), std::move(err.read_end)};
  return child;
}

}  // namespace lockstep::testing
