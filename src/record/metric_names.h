// The names of a process' metrics, in its recorder's memory: a hash table that only grows, without locks.
//
// A name is stored by whichever threads log it first, each of them the whole text, which is the same. So no thread
// waits for another one, and a name is complete before a record refers to it, also if its first writer was killed.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep::record {

inline constexpr std::size_t kMetricNames = 128;
inline constexpr std::size_t kMetricNameBytes = 64;  // with the final zero

struct MetricName {
  std::atomic<std::uint64_t> hash;  // of what the program wrote; 0: free
  std::atomic<std::uint32_t> complete;
  std::atomic<std::uint32_t> reserved;
  std::atomic<std::int64_t> logged;  // how many values
  std::atomic<char> text[kMetricNameBytes];
};

// What is stored of a name: valid UTF-8 without control characters, at most kMetricNameBytes - 1 bytes. Pure.
std::string stored_metric_name(std::string_view name);

// Its place in the table, in which it is now; nothing if the table is full. Allocates only for a new name.
std::optional<std::uint32_t> find_metric_name(MetricName (&table)[kMetricNames], std::string_view name);

}  // namespace lockstep::record
