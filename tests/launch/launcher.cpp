#include "launch/launcher.h"

#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>
#include <thread>

#include "base/random.h"

namespace lockstep::testing {
namespace {

std::string new_folder() {
  std::string path = "/tmp/lockstep_launch_test.XXXXXX";
  if (::mkdtemp(path.data()) == nullptr) throw std::system_error(errno, std::generic_category(), path);
  return path;
}

std::vector<std::string> command_line(std::vector<std::string> command, const std::vector<std::string>& arguments) {
  command.insert(command.end(), {LOCKSTEP_PROGRAM, "run"});
  command.insert(command.end(), arguments.begin(), arguments.end());
  return command;
}

Environment with(Environment environment, const std::string& folder, const std::string& mark) {
  environment.try_emplace("TMPDIR", folder);
  environment.try_emplace("XDG_RUNTIME_DIR", std::nullopt);
  environment.try_emplace("LOCKSTEP_SECRET", std::nullopt);
  environment["LOCKSTEP_LAUNCH_TEST"] = mark;
  return environment;
}

}  // namespace

std::string rank_program() { return LOCKSTEP_RANK_PROGRAM; }

std::string test_script(const std::string& name) { return std::string(LOCKSTEP_LAUNCH_TESTS) + "/" + name; }

std::string lockstep_program() { return LOCKSTEP_PROGRAM; }

Launcher::Launcher(const std::vector<std::string>& arguments, const Environment& environment,
                   const std::vector<std::string>& prefix)
    : folder_(new_folder()),
      mark_(random_hex(8)),
      process_(start_program(1, command_line(prefix, arguments), {.environment = with(environment, folder_, mark_)})) {}

Launcher::~Launcher() {
  process_.kill(0, SIGKILL);
  for (const pid_t pid : descendants()) ::kill(pid, SIGKILL);
  nothing_left();
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

int Launcher::wait() {
  const auto status = process_.wait(0, in_seconds(60));
  if (!status) return -1000;
  return status->signal != 0 ? -status->signal : status->code;
}

bool Launcher::wait_for_line(const std::string& text, double seconds) {
  return process_.wait_for_line(0, text, in_seconds(seconds));
}

std::vector<std::string> Launcher::out_lines() const {
  std::istringstream text(out());
  std::vector<std::string> lines;
  for (std::string line; std::getline(text, line);) lines.push_back(line);
  return lines;
}

std::vector<pid_t> Launcher::descendants() const {
  std::vector<pid_t> found;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", error)) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    const pid_t pid = std::stoi(name);
    if (pid == this->pid()) continue;
    // A zombie no longer has an environment.
    if (content_of("/proc/" + name + "/environ").find("LOCKSTEP_LAUNCH_TEST=" + mark_) != std::string::npos)
      found.push_back(pid);
  }
  return found;
}

bool Launcher::nothing_left() const {
  const Deadline deadline = in_seconds(10);
  while (!descendants().empty()) {
    if (deadline.expired()) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));  // poll
  }
  return true;
}

std::vector<std::string> Launcher::folders_left() const {
  std::vector<std::string> found;
  for (const auto& entry : std::filesystem::directory_iterator(folder_)) found.push_back(entry.path());
  return found;
}

TestFolder::TestFolder() : path_(new_folder()) {}

TestFolder::~TestFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::string content_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  if (file) text << file.rdbuf();
  return text.str();
}

}  // namespace lockstep::testing
