#include "support/process_set.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <spawn.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <stdexcept>
#include <system_error>
#include <thread>
#include <vector>

#include "base/unique_fd.h"
#include "support/child.h"
#include "support/hosts.h"

namespace lockstep::testing {
namespace {

[[noreturn]] void fail(const char* what, int error = errno) {
  throw std::system_error(error, std::generic_category(), what);
}

// System calls, because glibc 2.36 declares its wrappers without extern "C".
int open_pid_fd(pid_t pid) { return static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)); }
bool signal_pid_fd(const UniqueFd& pid_fd, int signal) {
  return ::syscall(SYS_pidfd_send_signal, pid_fd.get(), signal, nullptr, 0) == 0;
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

// True if `text` is in a line of `output` that is complete.
bool has_line(const std::string& output, const std::string& text) {
  const auto found = output.find(text);
  return found != std::string::npos && output.find('\n', found + text.size()) != std::string::npos;
}

struct Child {
  pid_t pid = -1;
  UniqueFd pid_fd;
  std::array<UniqueFd, 2> streams;   // read ends: stdout, stderr
  std::array<std::string, 2> text;   // what came from them
  std::optional<ExitStatus> status;  // set after the last byte was read
};

// Reads what is there. Closes the stream at its end.
void drain(UniqueFd& stream, std::string& text) {
  std::array<char, 16384> block{};
  while (stream.valid()) {
    const ssize_t got = ::read(stream.get(), block.data(), block.size());
    if (got > 0) {
      text.append(block.data(), static_cast<std::size_t>(got));
    } else if (got < 0 && errno == EINTR) {
      continue;
    } else {
      if (got == 0 || errno != EAGAIN) stream.reset();
      return;
    }
  }
}

ExitStatus reap(const UniqueFd& pid_fd) {
  siginfo_t info{};
  while (::waitid(P_PIDFD, static_cast<id_t>(pid_fd.get()), &info, WEXITED) != 0 && errno == EINTR) {
  }
  ExitStatus status;
  status.when = Deadline::Clock::now();
  (info.si_code == CLD_EXITED ? status.code : status.signal) = info.si_status;
  return status;
}

}  // namespace

std::string ExitStatus::to_string() const {
  if (signal == 0) return fmt::format("exit code {}", code);
  return fmt::format("killed by signal {} ({})", signal, ::strsignal(signal));
}

class ProcessSet::Impl {
 public:
  Impl() : wake_(::eventfd(0, EFD_CLOEXEC)) {
    if (!wake_.valid()) fail("eventfd");
  }

  ~Impl() {
    for (auto& child : children_) signal_pid_fd(child.pid_fd, SIGKILL);
    if (!collector_.joinable()) {  // starting a later process failed
      for (auto& child : children_) reap(child.pid_fd);
      return;
    }
    wait_until(Deadline::after(std::chrono::hours(1)), [this] { return all_ended(); });
    const std::uint64_t one = 1;
    if (::write(wake_.get(), &one, sizeof(one)) < 0) std::abort();
    collector_.join();
  }

  // Before collect() only.
  void start(const std::string& role, const Environment& environment, std::vector<int> inherited_fds);
  void collect() {
    collector_ = std::thread([this] { run_collector(); });
  }

  template <typename Condition>
  bool wait_until(Deadline deadline, Condition condition) {
    std::unique_lock lock(mutex_);
    return changed_.wait_until(lock, deadline.when(), condition);
  }

  bool all_ended() const {
    for (const auto& child : children_) {
      if (!child.status) return false;
    }
    return true;
  }

  const Child& child(int rank) const { return children_.at(static_cast<std::size_t>(rank)); }

  std::vector<Child> children_;  // fixed once the collector runs; text and status: mutex_
  mutable std::mutex mutex_;

 private:
  void run_collector();

  std::condition_variable changed_;
  UniqueFd wake_;
  std::thread collector_;
};

void ProcessSet::Impl::start(const std::string& role, const Environment& environment, std::vector<int> inherited_fds) {
  Environment variables = environment;
  variables[kRoleVariable] = role;
  variables[kParentVariable] = std::to_string(::getpid());
  std::vector<std::string> lines;
  for (const auto& [name, value] : variables) {
    if (value) lines.push_back(name + "=" + *value);
  }
  std::vector<char*> envp;
  for (auto& line : lines) envp.push_back(line.data());
  envp.push_back(nullptr);

  Pipe out;
  Pipe err;
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, out.write_end.get(), STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, err.write_end.get(), STDERR_FILENO);
  // Onto itself: clears close-on-exec in the child only.
  for (const int fd : inherited_fds) posix_spawn_file_actions_adddup2(&actions, fd, fd);

  std::string name = "lockstep-test:" + role;
  const std::array<char*, 2> argv = {name.data(), nullptr};
  Child child;
  const int error = ::posix_spawn(&child.pid, "/proc/self/exe", &actions, nullptr, argv.data(), envp.data());
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) fail("posix_spawn of the test program", error);
  child.pid_fd.reset(open_pid_fd(child.pid));
  if (!child.pid_fd.valid()) {
    const int reason = errno;
    ::kill(child.pid, SIGKILL);
    ::waitpid(child.pid, nullptr, 0);
    fail("pidfd_open", reason);
  }
  child.streams = {std::move(out.read_end), std::move(err.read_end)};
  children_.push_back(std::move(child));
}

void ProcessSet::Impl::run_collector() {
  while (true) {
    std::vector<pollfd> polled = {{wake_.get(), POLLIN, 0}};
    for (const auto& child : children_) {  // only this thread changes what is read here
      for (const auto& stream : child.streams) {
        if (stream.valid()) polled.push_back({stream.get(), POLLIN, 0});
      }
      if (!child.status) polled.push_back({child.pid_fd.get(), POLLIN, 0});
    }
    if (::poll(polled.data(), polled.size(), -1) < 0 && errno != EINTR) fail("poll");
    if (polled.front().revents != 0) return;

    const std::lock_guard lock(mutex_);
    for (auto& child : children_) {
      pollfd ended{child.pid_fd.get(), POLLIN, 0};
      const bool has_ended = !child.status && ::poll(&ended, 1, 0) == 1;
      // After the look at the pid: what a dead process wrote is in the pipe by now.
      for (std::size_t i = 0; i < child.streams.size(); ++i) drain(child.streams[i], child.text[i]);
      if (has_ended) child.status = reap(child.pid_fd);
    }
    changed_.notify_all();
  }
}

ProcessSet::ProcessSet(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ProcessSet::ProcessSet(ProcessSet&&) noexcept = default;
ProcessSet& ProcessSet::operator=(ProcessSet&&) noexcept = default;
ProcessSet::~ProcessSet() = default;

int ProcessSet::size() const { return static_cast<int>(impl_->children_.size()); }
pid_t ProcessSet::pid(int rank) const { return impl_->child(rank).pid; }

bool ProcessSet::kill(int rank, int signal) {
  // Not a plain kill(2): the pid could belong to somebody else once the collector has reaped it.
  return signal_pid_fd(impl_->child(rank).pid_fd, signal);
}

bool ProcessSet::wait_all(Deadline deadline) {
  return impl_->wait_until(deadline, [this] { return impl_->all_ended(); });
}

std::optional<ExitStatus> ProcessSet::wait(int rank, Deadline deadline) {
  impl_->wait_until(deadline, [&] { return impl_->child(rank).status.has_value(); });
  return exit_status(rank);
}

std::optional<ExitStatus> ProcessSet::exit_status(int rank) const {
  const std::lock_guard lock(impl_->mutex_);
  return impl_->child(rank).status;
}

bool ProcessSet::all_succeeded() const {
  const std::lock_guard lock(impl_->mutex_);
  for (const auto& child : impl_->children_) {
    if (!child.status || !child.status->success()) return false;
  }
  return true;
}

bool ProcessSet::wait_for_line(int rank, const std::string& text, Deadline deadline) {
  bool found = false;
  impl_->wait_until(deadline, [&] {
    const auto& child = impl_->child(rank);
    found = has_line(child.text[0], text) || has_line(child.text[1], text);
    return found || child.status.has_value();
  });
  return found;
}

std::string ProcessSet::output(int rank) const {
  const std::lock_guard lock(impl_->mutex_);
  return impl_->child(rank).text[0];
}

std::string ProcessSet::error_output(int rank) const {
  const std::lock_guard lock(impl_->mutex_);
  return impl_->child(rank).text[1];
}

std::string ProcessSet::report() const {
  const std::lock_guard lock(impl_->mutex_);
  std::string text;
  for (std::size_t rank = 0; rank < impl_->children_.size(); ++rank) {
    const auto& child = impl_->children_[rank];
    text +=
        fmt::format("rank {} (pid {}): {}\n", rank, child.pid, child.status ? child.status->to_string() : "running");
    if (!child.text[0].empty()) text += fmt::format("  stdout:\n{}", child.text[0]);
    if (!child.text[1].empty()) text += fmt::format("  stderr:\n{}", child.text[1]);
  }
  return text;
}

namespace {

bool is_inherited(std::string_view name) {
  constexpr std::array<std::string_view, 6> kOwn = {"RANK",        "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE",
                                                    "MASTER_ADDR", "MASTER_PORT"};
  for (const auto own : kOwn) {
    if (name == own) return false;
  }
  return name == "LOCKSTEP_LOG" || !name.starts_with("LOCKSTEP_");
}

Environment inherited_environment() {
  Environment result;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view line = *entry;
    const auto equals = line.find('=');
    if (equals == std::string_view::npos || !is_inherited(line.substr(0, equals))) continue;
    result[std::string(line.substr(0, equals))] = std::string(line.substr(equals + 1));
  }
  return result;
}

}  // namespace

ProcessSet start_ranks(int world_size, const std::string& role, const StartOptions& options) {
  if (!role_exists(role)) throw std::invalid_argument("no LOCKSTEP_PROCESS_ROLE is called " + role);
  const auto host_of = [&](int rank) {
    return options.hosts == nullptr ? 0 : rank * options.hosts->size() / world_size;
  };
  const std::string master = options.hosts == nullptr ? "127.0.0.1" : HostSet::address(0);
  const Listener listener = listen_inside(options.hosts == nullptr ? -1 : options.hosts->namespace_fd(0), master);

  auto impl = std::make_unique<ProcessSet::Impl>();
  for (int rank = 0; rank < world_size; ++rank) {
    Environment variables = inherited_environment();
    std::vector<int> fds;
    variables["RANK"] = std::to_string(rank);
    variables["WORLD_SIZE"] = std::to_string(world_size);
    variables["MASTER_ADDR"] = master;
    variables["MASTER_PORT"] = std::to_string(listener.port);
    if (rank == 0) {
      variables["LOCKSTEP_STORE_FD"] = std::to_string(listener.fd.get());
      fds.push_back(listener.fd.get());
    }
    if (options.hosts != nullptr) {
      const int fd = options.hosts->namespace_fd(host_of(rank));
      variables["LOCKSTEP_SECRET"] = "the secret of a test";
      variables[kNamespaceVariable] = std::to_string(fd);
      fds.push_back(fd);
    }
    for (const auto& [name, value] : options.environment) variables[name] = value;
    if (options.rank_variables) {
      for (const auto& [name, value] : options.rank_variables(rank)) variables[name] = value;
    }
    impl->start(role, variables, fds);
  }
  impl->collect();
  return ProcessSet(std::move(impl));
}

}  // namespace lockstep::testing
