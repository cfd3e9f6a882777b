#include "bench/driver/process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <utility>

#include "lockstep/base/deadline.h"

namespace lockstep::bench {
namespace {

constexpr std::array kSignals = {SIGINT, SIGTERM, SIGHUP};
volatile sig_atomic_t received_signal = 0;
std::array<struct sigaction, kSignals.size()> previous_actions;

void on_signal(int number) { received_signal = number; }

std::vector<char*> pointers(const std::vector<std::string>& strings) {
  std::vector<char*> out;
  for (const std::string& text : strings) out.push_back(const_cast<char*>(text.c_str()));
  out.push_back(nullptr);
  return out;
}

// Only async-signal-safe calls between fork and exec.
[[noreturn]] void become(char* const* command, char* const* environment, int output, pid_t parent) {
  ::setpgid(0, 0);  // only the driver handles Ctrl-C, and ends its children in order
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (::getppid() != parent) ::_exit(127);
  for (const int number : kSignals) ::signal(number, SIG_DFL);
  const int null = ::open("/dev/null", O_RDONLY);
  ::dup2(null, STDIN_FILENO);
  ::dup2(output, STDOUT_FILENO);
  ::dup2(output, STDERR_FILENO);
  ::execvpe(command[0], command, environment);
  static constexpr char kMessage[] = "cannot execute the program\n";
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, kMessage, sizeof kMessage - 1);
  ::_exit(127);
}

pid_t start(const std::vector<std::string>& command, const std::vector<std::string>& environment, int output) {
  std::vector<std::string> all;
  for (char** entry = ::environ; *entry != nullptr; ++entry) all.emplace_back(*entry);
  all.insert(all.begin(), environment.begin(), environment.end());
  const std::vector<char*> arguments = pointers(command);
  const std::vector<char*> variables = pointers(all);
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid < 0) throw BenchError(fmt::format("cannot start {}: {}", command[0], std::strerror(errno)));
  if (pid == 0) become(arguments.data(), variables.data(), output, parent);
  return pid;
}

}  // namespace

InterruptGuard::InterruptGuard() {
  received_signal = 0;
  struct sigaction action {};
  action.sa_handler = on_signal;
  for (std::size_t i = 0; i < kSignals.size(); ++i) ::sigaction(kSignals[i], &action, &previous_actions[i]);
}

InterruptGuard::~InterruptGuard() {
  for (std::size_t i = 0; i < kSignals.size(); ++i) ::sigaction(kSignals[i], &previous_actions[i], nullptr);
}

int InterruptGuard::signal() { return received_signal; }

void check_interrupted() {
  if (received_signal != 0) throw BenchError(fmt::format("ended by {}", ::strsignal(received_signal)));
}

ChildProcess::ChildProcess(const std::vector<std::string>& command, const std::vector<std::string>& environment,
                           const std::string& output_file) {
  const UniqueFd output(::open(output_file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  if (!output.valid()) throw BenchError(fmt::format("cannot write {}: {}", output_file, std::strerror(errno)));
  pid_ = start(command, environment, output.get());
}

ChildProcess::ChildProcess(ChildProcess&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)), reaped_(std::exchange(other.reaped_, true)) {}

ChildProcess::~ChildProcess() {
  if (reaped_) return;
  ::kill(-pid_, SIGTERM);
  if (wait_for_end(2000)) return;
  ::kill(-pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

bool ChildProcess::ended() {
  if (!reaped_ && ::waitpid(pid_, nullptr, WNOHANG) == pid_) reaped_ = true;
  return reaped_;
}

bool ChildProcess::wait_for_end(int milliseconds) {
  const Deadline deadline = Deadline::after(std::chrono::milliseconds(milliseconds));
  while (!ended() && !deadline.expired()) ::poll(nullptr, 0, 5);
  return reaped_;
}

CommandResult run_command(const std::vector<std::string>& command) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) throw BenchError(fmt::format("cannot create a pipe: {}", std::strerror(errno)));
  const UniqueFd in(ends[0]);
  UniqueFd out(ends[1]);
  const pid_t pid = start(command, {}, out.get());
  out.reset();
  CommandResult result;
  std::array<char, 4096> block;
  for (;;) {
    const ssize_t n = ::read(in.get(), block.data(), block.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    result.output.append(block.data(), static_cast<std::size_t>(n));
  }
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return result;
}

std::string run_or_throw(const std::vector<std::string>& command) {
  CommandResult result = run_command(command);
  if (result.exit_code != 0)
    throw BenchError(
        fmt::format("'{}' failed with code {}: {}", fmt::join(command, " "), result.exit_code, result.output));
  return std::move(result.output);
}

std::string find_program(const std::string& name) {
  const char* const path = std::getenv("PATH");
  std::string_view rest = path != nullptr ? path : "/usr/sbin:/usr/bin:/sbin:/bin";
  while (!rest.empty()) {
    const std::string_view folder = rest.substr(0, rest.find(':'));
    rest.remove_prefix(std::min(rest.size(), folder.size() + 1));
    const std::string candidate = fmt::format("{}/{}", folder, name);
    if (::access(candidate.c_str(), X_OK) == 0) return candidate;
  }
  return "";
}

TemporaryFolder::TemporaryFolder() {
  path_ = (std::filesystem::temp_directory_path() / "lockstep-bench-XXXXXX").string();
  if (::mkdtemp(path_.data()) == nullptr)
    throw BenchError(fmt::format("cannot create the folder {}: {}", path_, std::strerror(errno)));
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace lockstep::bench
