// What each rank of `lockstep bench scale` writes into the file that all of them map, one after the other by rank.
#pragma once

#include <atomic>
#include <cstdint>

namespace lockstep::bench {

// The variables through which the driver configures a worker.
inline constexpr const char* kScaleResults = "LOCKSTEP_BENCH_RESULTS";  // the path of that file
inline constexpr const char* kScaleIdle = "LOCKSTEP_BENCH_IDLE";        // seconds

// Times in nanoseconds of the monotonic clock; 0: not reached.
struct ScaleResult {
  std::int64_t entered_at;
  std::int64_t formed_at;
  std::int64_t first_ns;  // the first barrier, which makes links
  std::int64_t small_ns;  // all-reduce of 4 KiB, median
  std::int64_t large_ns;  // all-reduce of 4 MiB, median
  std::int64_t idle_cpu_ns;
  std::int64_t descriptors;
  std::int64_t sockets;
  std::int64_t memory_bytes;            // its share of all memory that it maps
  std::atomic<std::int64_t> killed_at;  // the victim: just before it killed itself
  std::int64_t named_at;                // the others: when the error arrived
  std::int64_t named;                   // 1: the error names the victim
};

// The rank that is killed.
inline int scale_victim(int ranks) { return ranks / 2; }

}  // namespace lockstep::bench
