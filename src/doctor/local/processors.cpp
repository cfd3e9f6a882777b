#include "doctor/local/processors.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "launch/options/core_binding.h"
#include "rendezvous/whole_number.h"

namespace lockstep::doctor {
namespace {

// The folder of this process' control group below `mount`, and all folders above it: a limit applies to all below.
std::vector<std::string> folders_of(const std::string& mount, std::string path) {
  std::vector<std::string> folders;
  while (path.size() > 1) {
    folders.push_back(mount + path);
    path.resize(path.rfind('/'));
  }
  folders.push_back(mount);
  return folders;
}

// "max 100000" or "150000 100000".
double quota_of_version_2(const std::string& line) {
  const double quota = std::strtod(line.c_str(), nullptr);  // "max" is 0
  const std::size_t space = line.find(' ');
  const double period = space == std::string::npos ? 0 : std::strtod(line.c_str() + space, nullptr);
  return quota > 0 && period > 0 ? quota / period : 0;
}

double quota_in(const System& system, const std::string& folder) {
  if (const auto line = system.first_line(folder + "/cpu.max")) return quota_of_version_2(*line);
  const auto quota = system.first_line(folder + "/cpu.cfs_quota_us");
  const auto period = system.first_line(folder + "/cpu.cfs_period_us");
  if (!quota || !period) return 0;
  return quota_of_version_2(*quota + " " + *period);
}

Finding judge_threads(const System& system, int cores, int ranks_here) {
  const int share = launch::cores_per_rank(cores, ranks_here);
  const auto variable = system.environment("OMP_NUM_THREADS");
  if (!variable) {
    return green("threads per rank",
                 fmt::format("OMP_NUM_THREADS is not set; `lockstep run` sets it to {} for {} rank{} on {} core{}",
                             share, ranks_here, ranks_here == 1 ? "" : "s", cores, cores == 1 ? "" : "s"));
  }
  const int threads = std::atoi(variable->c_str());
  const std::string value = fmt::format("OMP_NUM_THREADS={}", *variable);
  if (threads < 1) return red("threads per rank", value, "set a number of at least 1, or unset it");
  if (threads * ranks_here > std::max(cores, ranks_here)) {
    return yellow(
        "threads per rank",
        fmt::format("{}: {} ranks have {} threads on {} cores", value, ranks_here, threads * ranks_here, cores),
        fmt::format("threads that wait for a core delay all ranks: unset it, or set it to {}", share));
  }
  if (threads * ranks_here * 2 <= cores) {
    return yellow("threads per rank", fmt::format("{}: {} of {} cores are used", value, threads * ranks_here, cores),
                  fmt::format("unset it, or set it to {}", share));
  }
  return green("threads per rank", value);
}

}  // namespace

double processor_quota(const System& system) {
  double least = 0;
  for (const std::string& line : system.lines("/proc/self/cgroup")) {
    // "0::/user.slice" of version 2, "4:cpu,cpuacct:/docker/1f" of version 1.
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const bool version_2 = controllers == ",,";
    if (!version_2 && controllers.find(",cpu,") == std::string::npos) continue;
    const std::string mount = version_2 ? "/sys/fs/cgroup" : "/sys/fs/cgroup/cpu";
    for (const std::string& folder : folders_of(mount, line.substr(second + 1))) {
      const double quota = quota_in(system, folder);
      if (quota > 0) least = least == 0 ? quota : std::min(least, quota);
    }
  }
  return least;
}

std::vector<Finding> judge_processors(const System& system, int cores, int ranks_here) {
  std::vector<Finding> findings;
  findings.push_back(
      ranks_here > cores
          ? yellow("cores", fmt::format("{} for {} ranks", cores, ranks_here),
                   fmt::format("ranks that share a core slow each other down: --nproc-per-node {}", cores))
          : green("cores", fmt::format("{} for {} rank{}", cores, ranks_here, ranks_here == 1 ? "" : "s")));
  const double quota = processor_quota(system);
  if (quota == 0) {
    findings.push_back(green("control group", "no limit of processor time"));
  } else if (quota < cores) {
    findings.push_back(yellow(
        "control group", fmt::format("processor time of {:.3g} of {} cores", quota, cores),
        fmt::format("all threads are stopped whenever it is used up, and all ranks wait: raise the limit (`docker run "
                    "--cpus`, Kubernetes resources.limits.cpu), or use --nproc-per-node {} and OMP_NUM_THREADS=1",
                    std::max(1, static_cast<int>(quota)))));
  } else {
    findings.push_back(green("control group", fmt::format("processor time of {:.3g} cores", quota)));
  }
  const auto nodes = system.names("/sys/devices/system/node");
  const auto count = std::count_if(nodes.begin(), nodes.end(), [](const std::string& name) {
    return name.size() > 4 && name.starts_with("node") && name.find_first_not_of("0123456789", 4) == std::string::npos;
  });
  if (count > 1 && ranks_here < count) {
    findings.push_back(yellow("NUMA nodes",
                              fmt::format("{} for {} rank{}", count, ranks_here, ranks_here == 1 ? "" : "s"),
                              fmt::format("a rank whose threads are on several nodes works on remote memory: use "
                                          "--nproc-per-node {} or a multiple of it",
                                          count)));
  } else {
    findings.push_back(green("NUMA nodes", fmt::to_string(std::max<long>(count, 1))));
  }
  findings.push_back(judge_threads(system, cores, ranks_here));
  return findings;
}

}  // namespace lockstep::doctor
