// The times of one backward pass, for DdpLoggingData.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>

namespace lockstep::detail {

// Written by the thread that runs backward, except last_reduced(), which any thread may call.
class PassClock {
 public:
  using Clock = std::chrono::steady_clock;

  void forward_ended() { forward_end_ = Clock::now(); }
  void pass_began() {
    begin_ = Clock::now();
    if (forward_end_ == Clock::time_point{}) forward_end_ = begin_;
    first_launch_ = {};
    last_reduced_.store(0, std::memory_order_relaxed);
  }
  void launched() {
    if (first_launch_ == Clock::time_point{}) first_launch_ = Clock::now();
  }
  void gradients_complete() { compute_end_ = Clock::now(); }
  // A bucket's communication is over.
  void reduced() {
    const Clock::rep now = Clock::now().time_since_epoch().count();
    Clock::rep before = last_reduced_.load(std::memory_order_relaxed);
    while (before < now && !last_reduced_.compare_exchange_weak(before, now, std::memory_order_relaxed)) {
    }
  }
  void wait_ended() { wait_end_ = Clock::now(); }
  // The next pass without a forward of its own counts from its first gradient.
  void pass_ended() { forward_end_ = {}; }

  double compute_seconds() const { return seconds(compute_end_ - forward_end_); }
  double communication_seconds() const { return launched_any() ? seconds(last_reduced() - first_launch_) : 0; }
  double overlap_seconds() const {
    return launched_any() ? seconds(std::min(compute_end_, last_reduced()) - first_launch_) : 0;
  }
  double exposed_seconds() const { return launched_any() ? seconds(wait_end_ - compute_end_) : 0; }

 private:
  static double seconds(Clock::duration time) { return std::max(0.0, std::chrono::duration<double>(time).count()); }
  bool launched_any() const { return first_launch_ != Clock::time_point{}; }
  // Relaxed: read after the operations that stored it were waited for.
  Clock::time_point last_reduced() const {
    return Clock::time_point(Clock::duration(last_reduced_.load(std::memory_order_relaxed)));
  }

  Clock::time_point forward_end_{}, begin_{}, first_launch_{}, compute_end_{}, wait_end_{};
  std::atomic<Clock::rep> last_reduced_{0};
};

}  // namespace lockstep::detail
