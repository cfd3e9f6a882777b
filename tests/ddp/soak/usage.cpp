#include "ddp/soak/usage.h"

#include <malloc.h>

#include <fstream>
#include <limits>
#include <string>
#include <thread>

#include "support/process_resources.h"
#include "support/process_set.h"

namespace lockstep::soak {
namespace {

// A line "Anonymous:  116 kB" of /proc/self/smaps_rollup; 0 if there is none.
std::int64_t rollup(const std::string& name) {
  std::ifstream file("/proc/self/smaps_rollup");
  for (std::string word; file >> word;) {
    if (word != name + ":") continue;
    std::int64_t kib = 0;
    file >> kib;
    return kib;
  }
  return 0;
}

}  // namespace

Usage usage_now(const Usage& before) {
  const auto settled = [&before](const testing::ProcessResources& now) {
    return now.fds <= before[3] && now.threads <= before[4] && now.shared_mappings <= before[5];
  };
  const Deadline deadline = testing::in_seconds(1);
  auto counts = testing::ProcessResources::now();
  while (!settled(counts) && !deadline.expired()) {
    std::this_thread::yield();
    counts = testing::ProcessResources::now();
  }
  ::malloc_trim(0);  // what malloc keeps for later takes many rounds to settle, and is no leak
  const struct mallinfo2 heap = ::mallinfo2();
  return {static_cast<std::int64_t>((heap.uordblks + heap.hblkhd) / 1024),
          rollup("Anonymous"),
          rollup("Pss_Shmem"),
          counts.fds,
          counts.threads,
          counts.shared_mappings};
}

}  // namespace lockstep::soak
