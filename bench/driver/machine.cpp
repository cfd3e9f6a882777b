#include "bench/driver/machine.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>

#include "bench/driver/options.h"
#include "bench/driver/process.h"

namespace lockstep::bench {
namespace {

std::vector<int> usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> cores;
  if (::sched_getaffinity(0, sizeof set, &set) != 0) return cores;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &set)) cores.push_back(core);
  }
  return cores;
}

std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  }
  return "unknown processor";
}

}  // namespace

std::size_t cache_bytes() {
  // Not sysconf: on some processors glibc multiplies the size by the number of cores that share it.
  std::size_t largest = 0;
  for (int index = 0; index < 8; ++index) {
    std::ifstream file(fmt::format("/sys/devices/system/cpu/cpu0/cache/index{}/size", index));
    std::string text;
    if (!(file >> text)) continue;
    if (const Result<std::size_t> size = parse_bytes(text); size.ok()) largest = std::max(largest, *size);
  }
  return largest > 0 ? largest : std::size_t{32} << 20;
}

std::vector<int> cores_for(int ranks) {
  std::vector<int> cores = usable_cores();
  if (static_cast<std::size_t>(ranks) > cores.size()) return {};
  cores.resize(static_cast<std::size_t>(ranks));
  return cores;
}

std::string worker_folder() {
  std::error_code ignored;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", ignored);
  return (program.parent_path().parent_path() / "libexec" / "lockstep").string();
}

std::string describe_machine() {
  return fmt::format("{}, {} cores, {} MiB of cache", processor_name(), usable_cores().size(), cache_bytes() >> 20);
}

std::string python_with_torch() {
  const char* const chosen = std::getenv("LOCKSTEP_PYTHON");
  for (const std::string python : {chosen != nullptr ? chosen : "python3", "/usr/bin/python3"}) {
    if (run_command({python, "-c", "import torch.distributed"}).exit_code == 0) return python;
  }
  return "";
}

double load_average() {
  double load = 0;
  std::ifstream("/proc/loadavg") >> load;
  return load;
}

std::string random_secret() {
  std::random_device device;
  std::string secret;
  for (int i = 0; i < 8; ++i) secret += fmt::format("{:08x}", device());
  return secret;
}

}  // namespace lockstep::bench
