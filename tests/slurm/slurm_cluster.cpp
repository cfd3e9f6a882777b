#include "slurm/slurm_cluster.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <thread>

#include "slurm/slurm_configuration.h"

namespace lockstep::testing {
namespace {

namespace fs = std::filesystem;

constexpr double kStartSeconds = 60;

std::string content_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  if (file) text << file.rdbuf();
  return text.str();
}

std::string link_target(const fs::path& path) {
  std::error_code error;
  return fs::read_symlink(path, error).string();
}

template <typename Condition>
bool poll_until(Deadline deadline, Condition condition) {
  while (!condition()) {
    if (deadline.expired()) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return true;
}

// Without the variables that would make a command started here a rank of the test's job.
Environment slurm_environment(Environment further = {}) {
  for (const char* name : {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "LOCKSTEP_STORE_FD"}) {
    further.try_emplace(name, std::nullopt);
  }
  further["SLURM_CONF"] = fmt::format("{}/slurm.conf", kSlurmFolder);
  further["PATH"] = further["PATH"].value_or("/usr/sbin:/usr/bin:/sbin:/bin");
  further["TMPDIR"] = "/run/tmp";
  further["XDG_RUNTIME_DIR"] = std::nullopt;
  return further;
}

// The root and the working directory too: if this program runs in a chroot, the root of the mount namespace is not its
// own.
std::vector<std::string> enter_mounts_of(const std::string& process) {
  return {"nsenter", "--mount=" + process + "/ns/mnt", "--root=" + process + "/root", "--wd=" + process + "/root"};
}

// What the scripts of slurm_configuration.cpp do, in namespaces that end with it.
constexpr const char* kProbeScript = R"(
mount -t tmpfs tmpfs /run
touch /run/hosts
mount --bind /run/hosts /etc/hosts
hostname probe
chroot / true
)";

Status check_machine() {
  for (const char* command : {"munged", "slurmctld", "slurmd", "sbatch", "srun", "scontrol", "unshare"}) {
    if (::access(fmt::format("/usr/sbin/{}", command).c_str(), X_OK) == 0) continue;
    if (::access(fmt::format("/usr/bin/{}", command).c_str(), X_OK) == 0) continue;
    return Status(StatusCode::unavailable, fmt::format("the command {} is missing (tools/setup --test)", command));
  }
  if (::access("/etc/hosts", F_OK) != 0) {
    return Status(StatusCode::unavailable, "there is no /etc/hosts to mount the file of the nodes over");
  }
  ProcessSet probe =
      start_program(1, {"unshare", "--mount", "--uts", "--pid", "--fork", "--mount-proc", "sh", "-ec", kProbeScript},
                    {.environment = {{"PATH", "/usr/sbin:/usr/bin:/sbin:/bin"}}});
  if (!probe.wait_all(in_seconds(kStartSeconds)) || !probe.all_succeeded()) {
    return Status(StatusCode::unavailable,
                  fmt::format("a Slurm cluster on one machine needs CAP_SYS_ADMIN and CAP_SYS_CHROOT (root) for "
                              "namespaces and mounts, and a root directory that is a mount point, which that of a "
                              "plain chroot is not: {}",
                              probe.report()));
  }
  if (::geteuid() != 0) return Status(StatusCode::unavailable, "slurmctld and slurmd must run as root (SlurmUser)");
  return {};
}

}  // namespace

SlurmCluster::SlurmCluster(HostSet hosts) : hosts_(std::move(hosts)) {}

Result<std::unique_ptr<SlurmCluster>> SlurmCluster::start(const SlurmOptions& options) {
  LOCKSTEP_RETURN_IF_ERROR(check_machine());
  auto hosts = HostSet::create(options.nodes + 1);
  if (!hosts.ok()) return hosts.status();
  std::unique_ptr<SlurmCluster> cluster(new SlurmCluster(std::move(*hosts)));
  LOCKSTEP_RETURN_IF_ERROR(cluster->start_controller(options));
  for (int node = 0; node < options.nodes; ++node) LOCKSTEP_RETURN_IF_ERROR(cluster->start_node(node));
  LOCKSTEP_RETURN_IF_ERROR(cluster->wait_for_nodes(in_seconds(kStartSeconds)));
  return cluster;
}

SlurmCluster::~SlurmCluster() {
  for (auto& machine : machines_) machine->kill(0, SIGKILL);
  for (std::size_t host = 0; host < machines_.size(); ++host) {
    poll_until(in_seconds(10), [&] { return processes_of(host).empty(); });
  }
}

Status SlurmCluster::start_controller(const SlurmOptions& options) {
  const std::vector<std::string> command = {"nsenter",
                                            fmt::format("--net=/proc/{}/fd/{}", ::getpid(), hosts_.namespace_fd(0)),
                                            "unshare",
                                            "--mount",
                                            "--uts",
                                            "sh",
                                            "-euc",
                                            kControllerScript,
                                            "control",
                                            slurm_configuration(options),
                                            slurm_hosts_file(options.nodes)};
  machines_.push_back(std::make_unique<ProcessSet>(start_program(1, command, {.environment = slurm_environment()})));
  const bool answers = poll_until(in_seconds(kStartSeconds), [&] {
    // Before its mounts are made, the commands would use this machine's files.
    return machines_[0]->exit_status(0) ||
           (fs::exists(folder_outside() + "/../munge/munge.socket.2") && ask({"scontrol", "ping"}).success);
  });
  if (!answers || machines_[0]->exit_status(0)) {
    return Status(StatusCode::internal, fmt::format("slurmctld did not start:\n{}", machines_[0]->report()));
  }
  process_spaces_.push_back(link_target(fmt::format("/proc/{}/ns/pid_for_children", machines_[0]->pid(0))));
  return {};
}

Status SlurmCluster::start_node(int node) {
  std::vector<std::string> command = enter_mounts_of(fmt::format("/proc/{}", machines_[0]->pid(0)));
  command.push_back(fmt::format("--net=/proc/{}/fd/{}", ::getpid(), hosts_.namespace_fd(node + 1)));
  command.insert(command.end(), {"unshare", "--mount", "--uts", "--pid", "--fork", "--kill-child=KILL", "--mount-proc",
                                 "sh", "-euc", kNodeScript, "node", slurm_host_name(node + 1)});
  machines_.push_back(std::make_unique<ProcessSet>(start_program(1, command, {.environment = slurm_environment()})));
  const auto ours = link_target("/proc/self/ns/pid");
  const auto path = fmt::format("/proc/{}/ns/pid_for_children", machines_.back()->pid(0));
  std::string space;
  if (!poll_until(in_seconds(kStartSeconds), [&] { return !(space = link_target(path)).empty() && space != ours; })) {
    return Status(StatusCode::internal, fmt::format("node {} did not start:\n{}", node, machines_.back()->report()));
  }
  process_spaces_.push_back(space);
  return {};
}

Status SlurmCluster::wait_for_nodes(Deadline deadline) {
  std::string states;
  const bool idle = poll_until(deadline, [&] {
    states = ask({"sinfo", "--noheader", "--Node", "--format=%T"}).output;
    std::istringstream lines(states);
    std::size_t count = 0;
    for (std::string line; std::getline(lines, line); ++count) {
      if (line != "idle") return false;
    }
    return count + 1 == machines_.size();
  });
  if (idle) return {};
  return Status(StatusCode::internal, fmt::format("the nodes did not become idle: {}\n{}", states, report(0)));
}

SlurmCluster::Answer SlurmCluster::ask(const std::vector<std::string>& command, const Environment& environment) {
  const std::string controller = fmt::format("/proc/{}", machines_[0]->pid(0));
  std::vector<std::string> inside = enter_mounts_of(controller);
  inside.insert(inside.end(), {"--net=" + controller + "/ns/net", "--uts=" + controller + "/ns/uts", "--"});
  inside.insert(inside.end(), command.begin(), command.end());
  ProcessSet process = start_program(1, inside, {.environment = slurm_environment(environment)});
  process.wait_all(in_seconds(kStartSeconds));
  return {.success = process.all_succeeded(), .output = process.output(0), .error = process.error_output(0)};
}

int SlurmCluster::submit(const SlurmJob& job) {
  std::vector<std::string> command = {"sbatch", "--parsable", fmt::format("--chdir={}", kJobFolder),
                                      fmt::format("--output={}/%j.out", kJobFolder)};
  command.insert(command.end(), job.options.begin(), job.options.end());
  command.push_back(job.script);
  command.insert(command.end(), job.arguments.begin(), job.arguments.end());
  const Answer answer = ask(command, job.environment);
  if (!answer.success) throw std::runtime_error(fmt::format("sbatch failed: {}{}", answer.output, answer.error));
  return std::stoi(answer.output);
}

std::string SlurmCluster::state(int job) {
  const std::string text = ask({"scontrol", "--oneliner", "show", "job", std::to_string(job)}).output;
  const auto begin = text.find("JobState=");
  if (begin == std::string::npos) return {};
  return text.substr(begin + 9, text.find(' ', begin) - begin - 9);
}

std::string SlurmCluster::wait_for_end(int job, Deadline deadline) {
  std::string now;
  poll_until(deadline, [&] {
    now = state(job);
    return !now.empty() && now != "PENDING" && now != "CONFIGURING" && now != "RUNNING" && now != "COMPLETING";
  });
  return now;
}

std::string SlurmCluster::output(int job) const { return content_of(fmt::format("{}/{}.out", folder_outside(), job)); }

Status SlurmCluster::set_down(int node) {
  const Answer answer =
      ask({"scontrol", "update", "nodename=" + slurm_host_name(node + 1), "state=down", "reason=test"});
  if (answer.success) return {};
  return Status(StatusCode::internal, fmt::format("scontrol update: {}{}", answer.output, answer.error));
}

Status SlurmCluster::power_off(int node) {
  LOCKSTEP_RETURN_IF_ERROR(hosts_.cut_link(node + 1));
  const auto host = static_cast<std::size_t>(node) + 1;
  machines_[host]->kill(0, SIGKILL);
  if (poll_until(in_seconds(10), [&] { return processes_of(host).empty(); })) return {};
  return Status(StatusCode::internal, fmt::format("processes of node {} did not end", node));
}

std::vector<pid_t> SlurmCluster::processes_of(std::size_t host) const {
  std::vector<pid_t> result;
  if (host >= process_spaces_.size()) return result;
  for (const auto& entry : fs::directory_iterator("/proc")) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    if (link_target(entry.path() / "ns/pid") == process_spaces_[host]) result.push_back(std::stoi(name));
  }
  return result;
}

std::vector<std::string> SlurmCluster::wait_for_idle_node(int node, Deadline deadline) {
  std::vector<std::string> left;
  poll_until(deadline, [&] {
    left.clear();
    for (const pid_t pid : processes_of(static_cast<std::size_t>(node) + 1)) {
      const std::string name = content_of(fmt::format("/proc/{}/comm", pid));
      if (name == "sh\n" || name == "slurmd\n" || name.empty()) continue;
      left.push_back(content_of(fmt::format("/proc/{}/cmdline", pid)));
    }
    return left.empty();
  });
  return left;
}

std::string SlurmCluster::folder() { return kJobFolder; }

std::string SlurmCluster::folder_outside() const {
  return fmt::format("/proc/{}/root{}", machines_[0]->pid(0), kJobFolder);
}

std::string SlurmCluster::report(int job) {
  std::string text = job == 0 ? "" : ask({"scontrol", "show", "job", std::to_string(job)}).output;
  text += ask({"scontrol", "show", "nodes"}).output;
  text += fmt::format("--- output of job {}\n{}", job, output(job));
  for (std::size_t host = 0; host < machines_.size(); ++host) {
    text += fmt::format("--- {}\n{}", slurm_host_name(static_cast<int>(host)), machines_[host]->report());
  }
  return text;
}

}  // namespace lockstep::testing
