#include "lockstep/ddp/spawn.h"
#include "base/net/resolve.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <optional>
#include <string_view>
#include <thread>
#include <vector>

#include "base/net/socket.h"
#include "base/random.h"
#include "base/unique_fd.h"
#include "lockstep/base/deadline.h"
#include "lockstep/base/status.h"

extern char** environ;

namespace lockstep {

namespace {

constexpr const char* kVariable = "LOCKSTEP_SPAWN";

// What a started process is given: "<number of the call>,<rank>,<pipe to report an exception on>,<parent>".
struct Role {
  int call = 0;
  int rank = 0;
  int report_fd = -1;
  int parent = 0;
};

// Read before main(), so that a process whose parent is gone ends at once, whatever main() does first.
const std::optional<Role> kRole = []() -> std::optional<Role> {
  const char* text = std::getenv(kVariable);
  Role role;
  if (text == nullptr || std::sscanf(text, "%d,%d,%d,%d", &role.call, &role.rank, &role.report_fd, &role.parent) != 4) {
    return std::nullopt;
  }
  ::unsetenv(kVariable);
  ::fcntl(role.report_fd, F_SETFD, FD_CLOEXEC);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != role.parent) ::_exit(1);
  return role;
}();

int calls = 0;
bool in_function = false;

[[noreturn]] void fail(const std::string& what, int error = errno) {
  throw Error({StatusCode::resource_exhausted, fmt::format("spawn: {}: {}", what, std::strerror(error))});
}

// How a rank reports its failure: one of these, then the exception's text. A rank that only lost a peer failed as
// a consequence of that peer's failure, which may be detected later.
constexpr char kCause = '!';
constexpr char kConsequence = '>';
// What is kept of a report; of the rest only the length.
constexpr std::size_t kReportLimit = std::size_t{1} << 20;

void write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return std::perror("lockstep::spawn: report");
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
}

[[noreturn]] void run_as_child(const std::function<void(int)>& function) {
  in_function = true;
  std::string report;
  try {
    function(kRole->rank);
    std::exit(0);
  } catch (const Error& error) {
    const bool consequence = error.code() == StatusCode::peer_lost || error.code() == StatusCode::aborted ||
                             error.code() == StatusCode::closed;
    report = (consequence ? kConsequence : kCause) + std::string(error.what());
  } catch (const std::exception& error) {
    report = kCause + std::string(error.what());
  }
  write_all(kRole->report_fd, report);
  std::exit(1);
}

std::vector<std::string> own_arguments() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> arguments;
  for (std::string argument; std::getline(file, argument, '\0');) arguments.push_back(argument);
  return arguments;
}

std::vector<char*> pointers(std::vector<std::string>& strings) {
  std::vector<char*> result;
  for (std::string& text : strings) result.push_back(text.data());
  result.push_back(nullptr);
  return result;
}

struct Child {
  pid_t pid = -1;
  UniqueFd pid_fd;
  UniqueFd report_pipe;  // does not block; invalid once all of it was read
  std::string report;
  std::size_t report_left_out = 0;
  bool ended = false;

  // Takes what is in the pipe. A rank cannot end before all that it reports has been taken, and what it forked may hold
  // the pipe after it.
  void read_report();
};

void Child::read_report() {
  std::array<char, 16384> block;
  while (report_pipe.valid()) {
    const ssize_t got = ::read(report_pipe.get(), block.data(), block.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return;
    if (got <= 0) return report_pipe.reset();
    const std::size_t kept = std::min(static_cast<std::size_t>(got), kReportLimit - report.size());
    report.append(block.data(), kept);
    report_left_out += static_cast<std::size_t>(got) - kept;
  }
}

class Children {
 public:
  Children(int nprocs, int call);
  ~Children() { signal_all(SIGKILL), reap_all(); }
  // The first rank that failed and how; nothing if all have succeeded.
  std::optional<std::string> wait(const SpawnOptions& options);

 private:
  struct Failure {
    std::string message;
    bool consequence;  // of another rank's
  };
  void start(int rank, const std::map<std::string, std::string>& variables, int store_fd);
  std::optional<Failure> collect(std::size_t rank);
  std::optional<std::size_t> wait_any(int timeout_ms);
  void signal_all(int signal) {
    for (const Child& child : children_) {
      if (!child.ended) ::syscall(SYS_pidfd_send_signal, child.pid_fd.get(), signal, nullptr, 0);
    }
  }
  void reap_all() {
    for (Child& child : children_) {
      if (!child.ended) ::waitpid(child.pid, nullptr, 0);
    }
  }

  const int nprocs_;
  const int call_;
  std::vector<Child> children_;
};

Children::Children(int nprocs, int call) : nprocs_(nprocs), call_(call) {
  UniqueFd listener = value_or_throw(listen_on(value_or_throw(resolve("127.0.0.1", 0)).front()));
  std::map<std::string, std::string> variables;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    if (const auto equals = text.find('='); equals != std::string::npos) {
      variables[text.substr(0, equals)] = text.substr(equals + 1);
    }
  }
  variables["WORLD_SIZE"] = variables["LOCAL_WORLD_SIZE"] = std::to_string(nprocs);
  variables["MASTER_ADDR"] = "127.0.0.1";
  variables["MASTER_PORT"] = std::to_string(value_or_throw(local_address(listener.get())).port());
  for (const char* other : {"LOCKSTEP_SECRET_FILE", "LOCKSTEP_STORE_FD", "LOCKSTEP_STORE_IS_SERVED"})
    variables.erase(other);
  variables["LOCKSTEP_SECRET"] = random_hex(16);
  // More threads than cores make every rank slower.
  const unsigned threads = std::max(1U, std::thread::hardware_concurrency() / static_cast<unsigned>(nprocs));
  variables.try_emplace("OMP_NUM_THREADS", std::to_string(threads));
  for (int rank = 0; rank < nprocs; ++rank) {
    variables["RANK"] = variables["LOCAL_RANK"] = std::to_string(rank);
    start(rank, variables, rank == 0 ? listener.get() : -1);
  }
}

void Children::start(int rank, const std::map<std::string, std::string>& variables, int store_fd) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) fail("pipe");
  UniqueFd read_end(ends[0]);
  UniqueFd write_end(ends[1]);
  ::fcntl(read_end.get(), F_SETFL, O_NONBLOCK);
  std::vector<std::string> environment = {
      fmt::format("{}={},{},{},{}", kVariable, call_, rank, write_end.get(), ::getpid())};
  for (const auto& [name, value] : variables) environment.push_back(name + "=" + value);
  if (store_fd >= 0) environment.push_back(fmt::format("LOCKSTEP_STORE_FD={}", store_fd));

  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  // Onto itself: clears close-on-exec in the child only.
  posix_spawn_file_actions_adddup2(&actions, write_end.get(), write_end.get());
  if (store_fd >= 0) posix_spawn_file_actions_adddup2(&actions, store_fd, store_fd);
  std::vector<std::string> arguments = own_arguments();
  Child child;
  const int error = ::posix_spawn(&child.pid, "/proc/self/exe", &actions, nullptr, pointers(arguments).data(),
                                  pointers(environment).data());
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) fail("starting this program again", error);
  child.pid_fd.reset(static_cast<int>(::syscall(SYS_pidfd_open, child.pid, 0)));
  child.report_pipe = std::move(read_end);
  children_.push_back(std::move(child));
}

// Reads reports until a process has ended that was not collected yet, and returns its rank; nothing if none has in
// time, or if it only read.
std::optional<std::size_t> Children::wait_any(int timeout_ms) {
  std::vector<pollfd> polled;  // two for each rank; poll() passes over descriptors below 0
  for (const Child& child : children_) {
    polled.push_back({child.ended ? -1 : child.pid_fd.get(), POLLIN, 0});
    polled.push_back({child.ended ? -1 : child.report_pipe.get(), POLLIN, 0});
  }
  if (::poll(polled.data(), polled.size(), timeout_ms) <= 0) return std::nullopt;
  for (std::size_t rank = 0; rank < children_.size(); ++rank) {
    if (polled[2 * rank + 1].revents != 0) children_[rank].read_report();
  }
  for (std::size_t rank = 0; rank < children_.size(); ++rank) {
    if (polled[2 * rank].revents != 0) return rank;
  }
  return std::nullopt;
}

std::optional<Children::Failure> Children::collect(std::size_t rank) {
  Child& child = children_[rank];
  int status = 0;
  while (::waitpid(child.pid, &status, 0) < 0 && errno == EINTR) {
  }
  child.ended = true;
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return std::nullopt;
  child.read_report();
  const bool consequence = child.report.starts_with(kConsequence);
  std::string text = std::move(child.report);
  if (!text.empty()) text.replace(0, 1, ": ");
  if (child.report_left_out > 0) text += fmt::format("... ({} bytes more)", child.report_left_out);
  const std::string end =
      WIFSIGNALED(status) ? fmt::format("was killed by signal {} ({})", WTERMSIG(status), ::strsignal(WTERMSIG(status)))
                          : fmt::format("ended with exit code {}", WEXITSTATUS(status));
  return Failure{fmt::format("rank {} (pid {}) {}{}", rank, child.pid, end, text), consequence};
}

std::optional<std::string> Children::wait(const SpawnOptions& options) {
  std::optional<Failure> first;
  const Deadline never = Deadline::after(Deadline::Duration::max());
  Deadline grace = never;
  bool ended_by_us = false;
  for (std::size_t left = children_.size(); left > 0;) {
    if (const auto rank = wait_any(grace.poll_timeout_ms())) {
      --left;
      const std::optional<Failure> failure = collect(*rank);
      if (!failure) continue;
      // The others detect it by themselves; those that do not are killed.
      if (!first) grace = Deadline::after(options.grace);
      if (!first || (first->consequence && !failure->consequence && !ended_by_us)) first = failure;
    } else if (grace.expired()) {
      signal_all(SIGKILL);
      ended_by_us = true;
      grace = never;
    }
  }
  if (!first) return std::nullopt;
  return first->message;
}

}  // namespace

void spawn(int nprocs, const std::function<void(int rank)>& function, const SpawnOptions& options) {
  if (in_function) {
    throw Error(
        {StatusCode::invalid_argument, "spawn: this process was started by spawn itself; spawns cannot be nested"});
  }
  const int call = calls++;
  if (kRole) {
    if (call < kRole->call) return;  // this call is for the parent
    run_as_child(function);
  }
  if (nprocs < 1) {
    throw Error({StatusCode::invalid_argument, fmt::format("spawn: nprocs is {}, but must be at least 1", nprocs)});
  }
  if (const auto failure = Children(nprocs, call).wait(options)) {
    throw Error({StatusCode::peer_lost, fmt::format("spawn: {}", *failure)});
  }
}

}  // namespace lockstep
