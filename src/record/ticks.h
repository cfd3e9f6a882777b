// The recorder's clock: the processor's time-stamp counter if the kernel itself keeps time with it, CLOCK_MONOTONIC in
// nanoseconds otherwise. A reading of the counter takes half as long as one of the clock, and two of them are most of
// what a recorded operation costs.
//
// Ticks of all processes of a machine have the same origin and rate. TickScale converts them to nanoseconds.
#pragma once

#include <cstdint>

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

namespace lockstep::record {

enum class TickSource : std::uint32_t { monotonic_ns, time_stamp_counter };

// What this machine has. Constant.
TickSource tick_source();

std::uint64_t monotonic_ns();
std::int64_t wall_clock_ns();

namespace detail {
extern const bool use_counter;
}

inline std::uint64_t now_ticks() {
#if defined(__x86_64__)
  if (detail::use_counter) return __rdtsc();
#endif
  return monotonic_ns();
}

// The three clocks, read at the same time.
struct ClockReading {
  std::uint64_t ticks = 0;
  std::uint64_t monotonic_ns = 0;
  std::int64_t wall_ns = 0;

  static ClockReading now();
};

// Converts ticks of `source` to nanoseconds of CLOCK_MONOTONIC. `earlier` and `later` are two readings of this machine,
// from which the rate of the counter follows: a reading that is 10 ms older makes it exact to about 10 us per second.
class TickScale {
 public:
  TickScale(TickSource source, const ClockReading& earlier, const ClockReading& later);

  std::int64_t monotonic_ns(std::uint64_t ticks) const;
  double seconds(double ticks) const { return ticks * ns_per_tick_ * 1e-9; }

 private:
  ClockReading reading_;
  double ns_per_tick_ = 1;
};

}  // namespace lockstep::record
