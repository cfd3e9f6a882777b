#include "record/ticks.h"

#include <algorithm>
#include <ctime>
#include <fstream>
#include <string>

namespace lockstep::record {
namespace {

std::int64_t read_clock(clockid_t clock) {
  timespec now{};
  ::clock_gettime(clock, &now);
  return static_cast<std::int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
}

// The kernel has checked that the counter runs at one rate on all processors before it uses it.
bool kernel_uses_counter() {
#if defined(__x86_64__)
  std::ifstream file("/sys/devices/system/clocksource/clocksource0/current_clocksource");
  std::string name;
  return static_cast<bool>(file >> name) && name == "tsc";
#else
  return false;
#endif
}

}  // namespace

namespace detail {
const bool use_counter = kernel_uses_counter();
}

TickSource tick_source() { return detail::use_counter ? TickSource::time_stamp_counter : TickSource::monotonic_ns; }

std::uint64_t monotonic_ns() { return static_cast<std::uint64_t>(read_clock(CLOCK_MONOTONIC)); }
std::int64_t wall_clock_ns() { return read_clock(CLOCK_REALTIME); }

ClockReading ClockReading::now() {
  ClockReading best;
  std::uint64_t shortest = ~std::uint64_t{0};
  // The process may be interrupted between the readings: the closest ones of a few count.
  for (int attempt = 0; attempt < 5; ++attempt) {
    const std::uint64_t before = now_ticks();
    const std::uint64_t monotonic = record::monotonic_ns();
    const std::int64_t wall = wall_clock_ns();
    const std::uint64_t after = now_ticks();
    if (after - before >= shortest) continue;
    shortest = after - before;
    best = {before + (after - before) / 2, monotonic, wall};
  }
  return best;
}

TickScale::TickScale(TickSource source, const ClockReading& earlier, const ClockReading& later) : reading_(earlier) {
  if (source == TickSource::monotonic_ns || later.ticks <= earlier.ticks) return;
  ns_per_tick_ =
      static_cast<double>(later.monotonic_ns - earlier.monotonic_ns) / static_cast<double>(later.ticks - earlier.ticks);
}

std::int64_t TickScale::monotonic_ns(std::uint64_t ticks) const {
  const auto since = static_cast<std::int64_t>(ticks - reading_.ticks);
  return static_cast<std::int64_t>(reading_.monotonic_ns) +
         static_cast<std::int64_t>(static_cast<double>(since) * ns_per_tick_);
}

}  // namespace lockstep::record
