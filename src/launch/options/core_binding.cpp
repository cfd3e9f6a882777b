#include "launch/options/core_binding.h"

#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <tuple>

namespace lockstep::launch {
namespace {

// `fallback` if the kernel does not provide it.
int number_in(const std::string& path, int fallback) {
  std::ifstream file(path);
  int number = 0;
  return file >> number ? number : fallback;
}

}  // namespace

std::vector<Core> usable_cores() {
  constexpr int kMaxCores = 8192;
  cpu_set_t* const set = CPU_ALLOC(kMaxCores);
  const std::size_t size = CPU_ALLOC_SIZE(kMaxCores);
  CPU_ZERO_S(size, set);
  std::vector<Core> cores;
  if (::sched_getaffinity(0, size, set) == 0) {
    for (int id = 0; id < kMaxCores; ++id) {
      if (!CPU_ISSET_S(static_cast<std::size_t>(id), size, set)) continue;
      const std::string folder = fmt::format("/sys/devices/system/cpu/cpu{}/topology/", id);
      cores.push_back({.id = id,
                       .package = number_in(folder + "physical_package_id", 0),
                       .core = number_in(folder + "core_id", id)});
    }
  }
  CPU_FREE(set);
  if (cores.empty()) cores.push_back({});
  return cores;
}

std::vector<std::vector<int>> plan_binding(std::vector<Core> cores, int ranks) {
  const int share = ranks > 0 ? static_cast<int>(cores.size()) / ranks : 0;
  if (share == 0) return {};
  std::sort(cores.begin(), cores.end(), [](const Core& a, const Core& b) {
    return std::tie(a.package, a.core, a.id) < std::tie(b.package, b.core, b.id);
  });
  std::vector<std::vector<int>> plan(static_cast<std::size_t>(ranks));
  auto next = cores.begin();
  for (auto& mine : plan) {
    for (int i = 0; i < share; ++i) mine.push_back((next++)->id);
  }
  return plan;
}

int cores_per_rank(int cores, int ranks) { return std::max(1, cores / std::max(1, ranks)); }

}  // namespace lockstep::launch
