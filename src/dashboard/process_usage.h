// What a process uses of its machine, as the kernel counts it.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace lockstep::dashboard {

struct ProcessUsage {
  double cpu_seconds = 0;  // of all its threads since its start
  double cores = 0;        // how many it used lately; not set by read_usage()
  std::uint64_t resident_bytes = 0;
  int threads = 0;
};

// Reads /proc/PID/stat. Nothing if there is no such process.
std::optional<ProcessUsage> read_usage(std::int64_t pid);
// Parses that file's content. Pure.
std::optional<ProcessUsage> parse_stat(std::string_view stat, long ticks_per_second, long page_bytes);

}  // namespace lockstep::dashboard
