#include "cli/process_usage.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string>

namespace lockstep::cli {

std::optional<ProcessUsage> UsageSampler::sample(std::int64_t pid, std::int64_t now_ns) {
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  std::string line;
  std::getline(file, line);
  const std::size_t name_end = line.rfind(')');  // the name may contain anything
  if (name_end == std::string::npos) return std::nullopt;
  std::istringstream fields(line.substr(name_end + 1));
  std::string skipped;
  for (int field = 3; field < 14; ++field) fields >> skipped;
  double user = 0;
  double system = 0;
  fields >> user >> system;
  for (int field = 16; field < 24; ++field) fields >> skipped;
  std::uint64_t pages = 0;
  if (!(fields >> pages)) return std::nullopt;
  const double cpu_seconds = (user + system) / static_cast<double>(::sysconf(_SC_CLK_TCK));
  ProcessUsage usage{.resident_bytes = pages * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE))};
  const auto before = before_.find(pid);
  if (before != before_.end() && now_ns > before->second.time_ns) {
    const double passed = static_cast<double>(now_ns - before->second.time_ns) * 1e-9;
    usage.cores = std::max(0.0, cpu_seconds - before->second.cpu_seconds) / passed;
  }
  before_[pid] = {.time_ns = now_ns, .cpu_seconds = cpu_seconds};
  return usage;
}

}  // namespace lockstep::cli
