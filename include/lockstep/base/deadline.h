// A point in time until which something may wait. Everything that blocks takes one.
#pragma once

#include <algorithm>
#include <chrono>
#include <climits>

namespace lockstep {

class Deadline {
 public:
  using Clock = std::chrono::steady_clock;
  using Duration = Clock::duration;

  // Durations too long for the clock mean "the end of time" rather than an overflow.
  static Deadline after(Duration duration) {
    const auto now = Clock::now();
    if (duration > Clock::time_point::max() - now) return Deadline(Clock::time_point::max());
    return Deadline(now + duration);
  }
  // The same for coarser units, in which a duration may be longer than the clock can count.
  template <typename Rep, typename Period>
  static Deadline after(std::chrono::duration<Rep, Period> duration) {
    const auto now = Clock::now();
    using Unit = std::chrono::duration<Rep, Period>;
    if (duration >= std::chrono::duration_cast<Unit>(Clock::time_point::max() - now)) {
      return Deadline(Clock::time_point::max());
    }
    return Deadline(now + std::chrono::duration_cast<Duration>(duration));
  }
  static Deadline at(Clock::time_point when) { return Deadline(when); }

  Clock::time_point when() const { return when_; }
  bool expired() const { return Clock::now() >= when_; }
  // Never negative.
  Duration remaining() const { return std::max(Duration::zero(), when_ - Clock::now()); }
  Deadline earlier(Deadline other) const { return Deadline(std::min(when_, other.when_)); }

  // For poll(2): what remains in milliseconds, rounded up so that no caller spins on 0 before the
  // deadline, and at most `cap`.
  int poll_timeout_ms(int cap = INT_MAX) const {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(remaining()).count();
    return static_cast<int>(std::min<long long>(left, cap));
  }

 private:
  explicit Deadline(Clock::time_point when) : when_(when) {}
  Clock::time_point when_;
};

}  // namespace lockstep
