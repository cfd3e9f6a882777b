// Processor time and memory of processes, from /proc.
#pragma once

#include <cstdint>
#include <map>
#include <optional>

namespace lockstep::cli {

struct ProcessUsage {
  double cores = -1;  // since the sample before; negative: there was none
  std::uint64_t resident_bytes = 0;
};

class UsageSampler {
 public:
  // Nothing if there is no such process. `now_ns`: CLOCK_MONOTONIC.
  std::optional<ProcessUsage> sample(std::int64_t pid, std::int64_t now_ns);

 private:
  struct Before {
    std::int64_t time_ns = 0;
    double cpu_seconds = 0;
  };
  std::map<std::int64_t, Before> before_;
};

}  // namespace lockstep::cli
