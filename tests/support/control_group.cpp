#include "support/control_group.h"

#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <thread>
#include <utility>

#include "base/net/socket.h"
#include "lockstep/base/deadline.h"

namespace lockstep::testing {
namespace {

Status write_file(const std::string& path, const std::string& text) {
  std::ofstream file(path);
  file << text << std::flush;
  if (file) return {};
  return Status(StatusCode::unavailable, fmt::format("cannot write '{}' to {}", text, path));
}

std::string read_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

}  // namespace

Result<ControlGroup> ControlGroup::create(Kind kind) {
  static std::atomic<int> created = 0;
  const char* const controller = kind == Kind::freezer ? "freezer" : "cpu";
  const char* const file_1 = kind == Kind::freezer ? "freezer.state" : "cpu.cfs_quota_us";
  const char* const file_2 = kind == Kind::freezer ? "cgroup.freeze" : "cpu.max";
  std::string reasons;
  for (const std::string& parent : {fmt::format("/sys/fs/cgroup/{}", controller), std::string("/sys/fs/cgroup/unified"),
                                    std::string("/sys/fs/cgroup")}) {
    if (!std::filesystem::exists(parent + "/cgroup.procs")) continue;
    const std::string path = fmt::format("{}/lockstep-test-{}-{}", parent, ::getpid(), created++);
    std::error_code error;
    if (!std::filesystem::create_directory(path, error)) {
      reasons += fmt::format("{}: {}; ", path, error.message());
      continue;
    }
    ControlGroup group(parent, path, std::filesystem::exists(fmt::format("{}/{}", path, file_2)));
    if (group.version_2_ || std::filesystem::exists(fmt::format("{}/{}", path, file_1))) return group;
    reasons += fmt::format("{} has neither {} nor {}; ", path, file_1, file_2);
  }
  return Status(StatusCode::unavailable,
                fmt::format("no control group for '{}' can be created here: {}", controller,
                            reasons.empty() ? "no cgroup file system is mounted below /sys/fs/cgroup" : reasons));
}

ControlGroup::ControlGroup(std::string parent, std::string path, bool version_2)
    : parent_(std::move(parent)), path_(std::move(path)), version_2_(version_2) {}

ControlGroup::ControlGroup(ControlGroup&& other) noexcept
    : parent_(std::move(other.parent_)), path_(std::exchange(other.path_, {})), version_2_(other.version_2_) {}

ControlGroup::~ControlGroup() {
  if (path_.empty()) return;
  (void)thaw();
  // The kernel needs a moment until a process that ended has left its group.
  for (const Deadline deadline = Deadline::after(std::chrono::seconds(5)); !deadline.expired();) {
    std::ifstream members(path_ + "/cgroup.procs");
    for (std::string pid; std::getline(members, pid);) (void)write_file(parent_ + "/cgroup.procs", pid);
    if (::rmdir(path_.c_str()) == 0 || errno == ENOENT) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

void ControlGroup::add(const std::vector<pid_t>& processes) {
  for (const pid_t pid : processes) (void)write_file(path_ + "/cgroup.procs", std::to_string(pid));
}

Status ControlGroup::freeze() {
  LOCKSTEP_RETURN_IF_ERROR(version_2_ ? write_file(path_ + "/cgroup.freeze", "1")
                                      : write_file(path_ + "/freezer.state", "FROZEN"));
  for (const Deadline deadline = Deadline::after(std::chrono::seconds(5)); !deadline.expired();) {
    if (!version_2_ && read_line(path_ + "/freezer.state") == "FROZEN") return {};
    std::ifstream events(path_ + "/cgroup.events");
    for (std::string line; version_2_ && std::getline(events, line);) {
      if (line == "frozen 1") return {};
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return Status(StatusCode::timed_out, "the control group did not freeze within 5 s");
}

Status ControlGroup::thaw() {
  return version_2_ ? write_file(path_ + "/cgroup.freeze", "0") : write_file(path_ + "/freezer.state", "THAWED");
}

Status ControlGroup::starve() {
  return version_2_ ? write_file(path_ + "/cpu.max", "1000 100000") : write_file(path_ + "/cpu.cfs_quota_us", "1000");
}

}  // namespace lockstep::testing
