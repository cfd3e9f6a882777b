#include "launch/process/rank_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <ctime>
#include <utility>

#include "base/net/socket.h"

namespace lockstep::launch {
namespace {

// Everything that the child needs between fork and exec, prepared before the fork: the launcher has threads, so the
// child must not allocate.
struct Prepared {
  const char* path;
  std::vector<char*> arguments;
  std::vector<char*> environment;
  cpu_set_t* cores = nullptr;
  std::size_t cores_size = 0;
  rlimit open_files;
  int streams[3];
  int inherited;
  int guard;
  int error_pipe;
  bool wait_for_exec;
  pid_t launcher;
};

std::vector<char*> pointers(const std::vector<std::string>& strings) {
  std::vector<char*> result;
  result.reserve(strings.size() + 1);
  for (const auto& text : strings) result.push_back(const_cast<char*>(text.c_str()));
  result.push_back(nullptr);
  return result;
}

class CoreSet {
 public:
  explicit CoreSet(const std::vector<int>& cores) {
    if (cores.empty()) return;
    int highest = 0;
    for (const int core : cores) highest = std::max(highest, core);
    set_ = CPU_ALLOC(static_cast<std::size_t>(highest) + 1);
    size_ = CPU_ALLOC_SIZE(static_cast<std::size_t>(highest) + 1);
    CPU_ZERO_S(size_, set_);
    for (const int core : cores) CPU_SET_S(static_cast<std::size_t>(core), size_, set_);
  }
  ~CoreSet() {
    if (set_ != nullptr) CPU_FREE(set_);
  }
  CoreSet(const CoreSet&) = delete;
  CoreSet& operator=(const CoreSet&) = delete;
  cpu_set_t* get() const { return set_; }
  std::size_t size() const { return size_; }

 private:
  cpu_set_t* set_ = nullptr;
  std::size_t size_ = 0;
};

void reset_signals() {
  // Signals that were ignored when the launcher started stay ignored (nohup), except those that the launcher ignores.
  for (const int signal : {SIGPIPE, SIGXFSZ}) ::signal(signal, SIG_DFL);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction action {};
    if (::sigaction(signal, nullptr, &action) == 0 && action.sa_handler != SIG_IGN) ::signal(signal, SIG_DFL);
  }
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
}

// Async-signal-safe calls only.
[[noreturn]] void run_child(const Prepared& prepared) {
  ::setpgid(0, 0);
  Guard::add(prepared.guard, ::getpid());
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  // The launcher may have ended before the call above; then no signal arrives.
  if (::getppid() != prepared.launcher) ::_exit(127);
  // Best effort: if a core went offline meanwhile, the rank runs on any core.
  if (prepared.cores != nullptr) ::sched_setaffinity(0, prepared.cores_size, prepared.cores);
  ::setrlimit(RLIMIT_NOFILE, &prepared.open_files);
  for (int stream = 0; stream < 3; ++stream) ::dup2(prepared.streams[stream], stream);
  if (prepared.inherited > 2) ::fcntl(prepared.inherited, F_SETFD, 0);
  reset_signals();
  ::execve(prepared.path, prepared.arguments.data(), prepared.environment.data());
  const int error = errno;
  constexpr char kMessage[] = "lockstep run: the program can no longer be executed\n";
  if (!prepared.wait_for_exec) static_cast<void>(!::write(STDERR_FILENO, kMessage, sizeof(kMessage) - 1));
  while (::write(prepared.error_pipe, &error, sizeof(error)) < 0 && errno == EINTR) {
  }
  ::_exit(127);
}

std::string exec_error(const std::string& path, int error) {
  if (error == ENOEXEC) {
    return fmt::format(
        "'{}' cannot be executed: it is neither a program for this machine nor a script that begins with "
        "#! and its interpreter",
        path);
  }
  if (error == ENOENT) {
    return fmt::format(
        "'{}' cannot be executed: its interpreter (the #! line, or the loader of a program for another "
        "system) does not exist",
        path);
  }
  if (error == E2BIG) return fmt::format("'{}' cannot be executed: its arguments and environment are too long", path);
  return fmt::format("'{}' cannot be executed: {}", path, errno_text(error));
}

Status no_process(int error) {
  return Status(StatusCode::resource_exhausted,
                fmt::format("cannot create a process for a rank: {}; see ulimit -u and ulimit -n", errno_text(error)));
}

// Above 2, so that dup2 onto the standard streams never overwrites its own source.
UniqueFd open_null() {
  UniqueFd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  if (null.valid() && null.get() <= 2) null.reset(::fcntl(null.get(), F_DUPFD_CLOEXEC, 3));
  return null;
}

}  // namespace

std::int64_t wall_clock_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  return static_cast<std::int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
}

RankProcess::RankProcess(pid_t pid, UniqueFd pid_fd, const Guard& guard)
    : pid_(pid), pid_fd_(std::move(pid_fd)), guard_(&guard), started_ns_(wall_clock_ns()) {}

RankProcess::RankProcess(RankProcess&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      pid_fd_(std::move(other.pid_fd_)),
      guard_(other.guard_),
      started_ns_(other.started_ns_) {}

RankProcess::~RankProcess() {
  if (reaped()) return;
  signal_group(SIGKILL);
  reap();
}

Result<RankProcess> RankProcess::start(const ProcessSpec& spec, const Guard& guard) {
  const UniqueFd null = open_null();
  int ends[2];
  if (!null.valid() || ::pipe2(ends, O_CLOEXEC) != 0) return no_process(errno);
  UniqueFd error_reader(ends[0]);
  UniqueFd error_writer(ends[1]);
  const CoreSet cores(spec.cores);
  const auto or_null = [&](int fd) { return fd >= 0 ? fd : null.get(); };
  const Prepared prepared{.path = spec.path.c_str(),
                          .arguments = pointers(spec.arguments),
                          .environment = pointers(spec.environment),
                          .cores = cores.get(),
                          .cores_size = cores.size(),
                          .open_files = spec.open_files,
                          .streams = {or_null(spec.stdin_fd), or_null(spec.stdout_fd), or_null(spec.stderr_fd)},
                          .inherited = spec.inherited_fd,
                          .guard = guard.fd(),
                          .error_pipe = error_writer.get(),
                          .wait_for_exec = spec.wait_for_exec,
                          .launcher = ::getpid()};
  const pid_t pid = ::fork();
  if (pid < 0) return no_process(errno);
  if (pid == 0) run_child(prepared);
  error_writer.reset();
  ::setpgid(pid, pid);  // here too, so that the group exists when this function returns
  // A system call, because glibc 2.36 declares its wrapper without extern "C".
  RankProcess process(pid, UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0))), guard);
  if (!process.pid_fd_.valid()) return no_process(errno);
  if (!spec.wait_for_exec) return process;
  int error = 0;
  ssize_t got = 0;
  while ((got = ::read(error_reader.get(), &error, sizeof(error))) < 0 && errno == EINTR) {
  }
  if (got == static_cast<ssize_t>(sizeof(error)))
    return Status(StatusCode::invalid_argument, exec_error(spec.path, error));
  return process;
}

void RankProcess::signal_group(int signal) const {
  if (!reaped()) ::kill(-pid_, signal);
}

void RankProcess::kill_remains() const { signal_group(SIGKILL); }

ProcessEnd RankProcess::reap() {
  siginfo_t info{};
  // First without reaping: until the guard has removed the group, its number must not be reused.
  while (::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOWAIT) != 0 && errno == EINTR) {
  }
  ProcessEnd end{.exit_code = 0, .signal = 0, .time_ns = wall_clock_ns()};
  (info.si_code == CLD_EXITED ? end.exit_code : end.signal) = info.si_status;
  guard_->remove(pid_);
  while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
  pid_ = -1;
  pid_fd_.reset();
  return end;
}

}  // namespace lockstep::launch
