#include "launch/report/stacks.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "base/net/socket.h"
#include "base/small_file.h"
#include "base/unique_fd.h"
#include "lockstep/base/deadline.h"

namespace lockstep::launch {
namespace {

// More is a runaway recursion.
constexpr std::size_t kLargestText = std::size_t{4} << 20;
constexpr std::chrono::milliseconds kTick{50};

std::string line_of_file(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// 'R', 'S', 'D', 'T' (stopped by a signal), 't' (by a debugger), 'Z'; 0: there is no such process.
char state_of(std::int64_t pid) {
  const std::string line = line_of_file(fmt::format("/proc/{}/stat", pid));
  const std::size_t name_end = line.rfind(')');
  return name_end == std::string::npos || name_end + 2 >= line.size() ? '\0' : line[name_end + 2];
}

const char* state_name(char state) {
  switch (state) {
    case 'R': return "running";
    case 'S': return "sleeping";
    case 'D': return "in an uninterruptible wait";
    case 'T': return "stopped by a signal";
    case 't': return "stopped by a debugger";
    case 'Z': return "ended";
    default: return "in an unknown state";
  }
}

std::string find_in(const std::string& path, const std::string& name) {
  std::istringstream folders(path);
  for (std::string folder; std::getline(folders, folder, ':');) {
    const std::string file = fmt::format("{}/{}", folder, name);
    if (::access(file.c_str(), X_OK) == 0) return file;
  }
  return {};
}

// A child whose output is read; the destructor kills and reaps it.
class Tool {
 public:
  explicit Tool(const std::vector<std::string>& command) {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) return;
    output_.reset(ends[0]);
    const UniqueFd write_end(ends[1]);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, write_end.get(), STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, write_end.get(), STDERR_FILENO);
    std::vector<char*> arguments;
    for (const std::string& argument : command) arguments.push_back(const_cast<char*>(argument.c_str()));
    arguments.push_back(nullptr);
    // Symbols must not be looked for in the network.
    std::vector<char*> environment;
    for (char** variable = environ; *variable != nullptr; ++variable) {
      if (!std::string_view(*variable).starts_with("DEBUGINFOD_URLS=")) environment.push_back(*variable);
    }
    environment.push_back(nullptr);
    if (::posix_spawn(&pid_, command[0].c_str(), &actions, nullptr, arguments.data(), environment.data()) != 0)
      pid_ = -1;
    posix_spawn_file_actions_destroy(&actions);
  }
  ~Tool() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  Tool(const Tool&) = delete;
  Tool& operator=(const Tool&) = delete;

  bool started() const { return pid_ > 0; }
  // False: not complete by the deadline.
  bool read_all(std::string& text, Deadline deadline, const std::atomic<bool>* cancel) {
    std::array<char, 16384> block{};
    while (!deadline.expired() && (cancel == nullptr || !cancel->load()) && text.size() < kLargestText) {
      if (!wait_ready(output_.get(), POLLIN, deadline.earlier(Deadline::after(kTick))).ok()) continue;
      const ssize_t got = ::read(output_.get(), block.data(), block.size());
      if (got <= 0) return true;
      text.append(block.data(), static_cast<std::size_t>(got));
    }
    return false;
  }

 private:
  UniqueFd output_;
  pid_t pid_ = -1;
};

// A debugger that was killed while it attached leaves stop signals behind, some of which may not be delivered yet: the
// process would stop later. SIGCONT discards those, too. Call it when the debugger has been reaped.
void make_run_again(std::int64_t pid, bool debugger_was_killed) {
  if (debugger_was_killed) ::kill(static_cast<pid_t>(pid), SIGCONT);
  const Deadline deadline = Deadline::after(std::chrono::seconds(1));
  do {
    if (state_of(pid) == 'T') ::kill(static_cast<pid_t>(pid), SIGCONT);
    ::poll(nullptr, 0, 10);
  } while (state_of(pid) == 'T' && !deadline.expired());
}

bool was_refused(const std::string& text) {
  return text.find("Operation not permitted") != std::string::npos ||
         text.find("Permission denied") != std::string::npos;
}

}  // namespace

std::string describe_threads(std::int64_t pid) {
  const std::string folder = fmt::format("/proc/{}/task", pid);
  auto names = list_folder(folder);
  if (!names.ok()) return "its process has ended\n";
  std::erase_if(*names, [](const std::string& name) { return name.starts_with('.'); });
  std::sort(names->begin(), names->end(),
            [](const std::string& a, const std::string& b) { return std::pair(a.size(), a) < std::pair(b.size(), b); });
  std::string text;
  for (const std::string& thread : *names) {
    const std::string task = fmt::format("{}/{}", folder, thread);
    const std::string line = line_of_file(task + "/stat");
    const std::size_t name_end = line.rfind(')');
    if (name_end == std::string::npos || name_end + 2 >= line.size()) continue;
    const std::string place = line_of_file(task + "/wchan");
    text += fmt::format("thread {} ({}): {}{}\n", thread, line_of_file(task + "/comm"), state_name(line[name_end + 2]),
                        place.empty() || place == "0" ? "" : " in " + place);
  }
  return text;
}

std::vector<std::string> stack_command(std::int64_t pid, const std::string& path) {
  if (const std::string tool = find_in(path, "eu-stack"); !tool.empty()) {
    return {tool, "-n", "64", "-p", std::to_string(pid)};
  }
  if (const std::string tool = find_in(path, "gdb"); !tool.empty()) {
    return {tool, "-nx", "-batch", "-p", std::to_string(pid), "-ex", "thread apply all backtrace 64"};
  }
  return {};
}

std::string ptrace_advice(int scope) {
  if (scope <= 0) return "only root, and the user who started the job, may look at its processes";
  return fmt::format(
      "kernel.yama.ptrace_scope is {}: run as root, or allow it with `sysctl kernel.yama.ptrace_scope=0`; a container "
      "needs --cap-add SYS_PTRACE",
      scope);
}

std::string take_stacks(std::int64_t pid, const StackOptions& options) {
  const char state = state_of(pid);
  if (state == '\0' || state == 'Z') return "no stacks: its process has ended\n";
  if (state == 'T' || state == 't') return fmt::format("no stacks: it is {}\n", state_name(state));
  const char* const path = std::getenv("PATH");
  const auto command = stack_command(pid, path != nullptr ? path : "/usr/bin:/bin");
  if (command.empty()) return "no stacks: neither eu-stack nor gdb is installed (apt-get install elfutils)\n";
  std::string text;
  bool complete = false;
  {
    Tool tool(command);
    if (!tool.started()) return fmt::format("no stacks: {} cannot be started\n", command[0]);
    complete = tool.read_all(text, Deadline::after(options.limit), options.cancel);
  }
  make_run_again(pid, !complete);
  if (was_refused(text)) {
    return fmt::format("no stacks: ptrace is not permitted; {}\n",
                       ptrace_advice(std::atoi(line_of_file("/proc/sys/kernel/yama/ptrace_scope").c_str())));
  }
  if (!complete)
    text += fmt::format("\n(incomplete: ended after {} ms, because the rank must continue)\n", options.limit.count());
  return text;
}

}  // namespace lockstep::launch
