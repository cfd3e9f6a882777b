#include "chaos/chaos_job.h"

#include <fmt/format.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "base/random.h"

namespace lockstep::testing {
namespace {

std::string content_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string link_target(const std::filesystem::path& path) {
  std::error_code error;
  return std::filesystem::read_symlink(path, error).string();
}

// Pids of processes whose environment names `folder`: those of one job.
std::vector<pid_t> processes_of(const std::string& folder) {
  std::vector<pid_t> result;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    if (content_of(entry.path() / "environ").find("LOG_FOLDER=" + folder) == std::string::npos) continue;
    const std::string status = content_of(entry.path() / "stat");
    if (status.find(") Z ") != std::string::npos) continue;
    result.push_back(std::stoi(name));
  }
  return result;
}

}  // namespace

ChaosJob::ChaosJob(const ChaosOptions& options, HostSet& hosts)
    : options_(options), hosts_(hosts), secret_(random_hex(16)), nodes_(static_cast<std::size_t>(options.hosts)) {
  std::filesystem::create_directories(options_.plan.folder);
  std::filesystem::create_directories(failpoint_folder());
  // In a mount namespace of this test, so that nothing stays mounted however it ends.
  has_disks_ = ::unshare(CLONE_NEWNS) == 0 && ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0;
  for (int host = 0; has_disks_ && host < options_.hosts; ++host) {
    const std::string folder = fmt::format("{}/run{}", options_.folder, host);
    std::filesystem::create_directories(folder);
    has_disks_ = ::mount("tmpfs", folder.c_str(), "tmpfs", 0, "size=1m") == 0;
  }
}

ChaosJob::~ChaosJob() {
  nodes_.clear();
  for (const pid_t pid : leftovers()) ::kill(pid, SIGKILL);
  for (int host = 0; host < options_.hosts; ++host) {
    ::umount2(fmt::format("{}/run{}", options_.folder, host).c_str(), MNT_DETACH);
  }
}

std::string ChaosJob::runtime_folder(int host) const {
  return has_disks_ ? fmt::format("{}/run{}", options_.folder, host) : "";
}

void ChaosJob::start_node(int host) {
  std::string endpoints;
  for (int i = 0; i < options_.hosts; ++i) {
    endpoints += fmt::format("{}{}:29400", i == 0 ? "" : ",", HostSet::address(i));
  }
  const std::vector<std::string> command = {"nsenter",
                                            fmt::format("--net=/proc/{}/fd/{}", ::getpid(), hosts_.namespace_fd(host)),
                                            options_.launcher,
                                            "run",
                                            "--elastic",
                                            "--nnodes",
                                            fmt::format("1:{}", options_.hosts),
                                            "--nproc-per-node",
                                            std::to_string(options_.ranks),
                                            "--rdzv-endpoint",
                                            endpoints,
                                            "--rdzv-id",
                                            "chaos",
                                            "--max-restarts",
                                            "100000",
                                            options_.program};
  Environment environment = {
      {"LOCKSTEP_SECRET", secret_}, {"OMP_NUM_THREADS", "1"}, {"LOCKSTEP_FAILPOINTS", failpoint_folder()}};
  if (has_disks_) environment["XDG_RUNTIME_DIR"] = runtime_folder(host);
  for (const char* name : {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "LOCKSTEP_STORE_FD"}) {
    environment[name] = std::nullopt;
  }
  for (const auto& [name, value] : options_.plan.variables()) environment[name] = value;
  auto& node = nodes_[static_cast<std::size_t>(host)];
  if (node) earlier_ += fmt::format("earlier launcher of host {}:\n{}", host, node->report());
  node.emplace(start_program(1, command, {.environment = environment}));
}

bool ChaosJob::node_runs(int host) const {
  const auto& node = nodes_[static_cast<std::size_t>(host)];
  return node && !node->exit_status(0);
}

int ChaosJob::restart_incomplete_nodes() {
  int restarted = 0;
  for (int host = 0; host < options_.hosts; ++host) {
    if (!node_runs(host) || ranks(host).size() >= static_cast<std::size_t>(options_.ranks)) continue;
    signal_node(host, SIGKILL);
    for (const Deadline ended = in_seconds(5); node_runs(host) && !ended.expired();) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    start_node(host);
    ++restarted;
  }
  return restarted;
}

void ChaosJob::signal_node(int host, int signal) {
  auto& node = nodes_[static_cast<std::size_t>(host)];
  if (node) node->kill(0, signal);
}

std::vector<pid_t> ChaosJob::ranks(std::optional<int> host) const {
  std::vector<pid_t> result;
  const std::string program = std::filesystem::canonical(options_.program);
  for (const pid_t pid : processes_of(options_.plan.folder)) {
    if (link_target(fmt::format("/proc/{}/exe", pid)) != program) continue;
    if (host && !is_on(pid, *host)) continue;
    result.push_back(pid);
  }
  std::sort(result.begin(), result.end());
  return result;
}

bool ChaosJob::is_on(pid_t pid, int host) const {
  return link_target(fmt::format("/proc/{}/ns/net", pid)) ==
         link_target(fmt::format("/proc/self/fd/{}", hosts_.namespace_fd(host)));
}

std::vector<pid_t> ChaosJob::processes(int host) const {
  std::vector<pid_t> result = processes_of(options_.plan.folder);
  std::erase_if(result, [&](pid_t pid) { return !is_on(pid, host); });
  return result;
}

void ChaosJob::continue_stopped() const {
  for (const pid_t pid : processes_of(options_.plan.folder)) {
    if (content_of(fmt::format("/proc/{}/stat", pid)).find(") T ") != std::string::npos) ::kill(pid, SIGCONT);
  }
}

std::vector<pid_t> ChaosJob::holders(std::optional<int> host) {
  newest_step();
  std::vector<pid_t> result = ranks(host);
  std::erase_if(result, [this](pid_t pid) { return !committed_.contains(pid); });
  return result;
}

bool ChaosJob::wait_for_holders(std::size_t count, Deadline deadline) {
  while (holders().size() < count) {
    if (deadline.expired()) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  return true;
}

std::int64_t ChaosJob::newest_step() {
  for (const auto& entry : std::filesystem::directory_iterator(options_.plan.folder)) {
    std::uint64_t& read = read_[entry.path()];
    std::ifstream log(entry.path());
    log.seekg(static_cast<std::streamoff>(read));
    for (std::string line; std::getline(log, line) && !log.eof();) {
      read += line.size() + 1;
      std::int64_t epoch = 0, step = 0;
      if (std::sscanf(line.c_str(), "commit %ld %ld", &epoch, &step) != 2) continue;
      newest_ = std::max(newest_, step);
      committed_.insert(std::stoi(entry.path().filename()));
    }
  }
  return newest_;
}

bool ChaosJob::wait_for_step(std::int64_t step, Deadline deadline) {
  while (newest_step() < step) {
    bool any = false;
    for (int host = 0; host < options_.hosts; ++host) any |= node_runs(host);
    if (!any || deadline.expired()) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return true;
}

bool ChaosJob::finish(Deadline deadline) {
  std::ofstream(options_.plan.finish).put('\n');
  bool all = true;
  for (auto& node : nodes_) all = (!node || node->wait_all(deadline)) && all;
  return all;
}

bool ChaosJob::all_succeeded() const {
  return std::all_of(nodes_.begin(), nodes_.end(), [](const auto& node) { return !node || node->all_succeeded(); });
}

std::vector<pid_t> ChaosJob::leftovers() const { return processes_of(options_.plan.folder); }

std::string ChaosJob::report() const {
  std::string text = earlier_;
  for (std::size_t host = 0; host < nodes_.size(); ++host) {
    if (nodes_[host]) text += fmt::format("launcher of host {}:\n{}", host, nodes_[host]->report());
  }
  return text;
}

}  // namespace lockstep::testing
