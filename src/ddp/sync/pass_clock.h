// The times of one backward pass, for DdpLoggingData and for the recorder.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>

#include "record/step_clock.h"

namespace lockstep::detail {

// Written by the thread that runs backward, except reduced(), which any thread may call.
class PassClock {
 public:
  using Clock = std::chrono::steady_clock;

  void forward_began() { steps_.forward_began(); }
  void forward_ended() {
    forward_end_ = Clock::now();
    steps_.forward_ended();
  }
  void pass_began() {
    begin_ = Clock::now();
    if (forward_end_ == Clock::time_point{}) forward_end_ = begin_;
    first_launch_ = {};
    last_reduced_.store(0, std::memory_order_relaxed);
  }
  void launched(std::size_t bucket, std::int64_t bytes) {
    steps_.bucket_launched(bucket, static_cast<std::uint64_t>(bytes));
    if (first_launch_ == Clock::time_point{}) first_launch_ = Clock::now();
  }
  void gradients_complete() {
    compute_end_ = Clock::now();
    steps_.gradients_complete();
  }
  // A bucket's communication is over.
  void reduced(std::size_t bucket) {
    steps_.bucket_reduced(bucket);
    const Clock::rep now = Clock::now().time_since_epoch().count();
    Clock::rep before = last_reduced_.load(std::memory_order_relaxed);
    while (before < now && !last_reduced_.compare_exchange_weak(before, now, std::memory_order_relaxed)) {
    }
  }
  void wait_ended() {
    wait_end_ = Clock::now();
    steps_.wait_ended();
  }
  // All gradients have their averages.
  void step_ended() { steps_.step_ended(); }
  // The next pass without a forward of its own counts from its first gradient.
  void pass_ended() { forward_end_ = {}; }

  const record::StepClock& steps() const { return steps_; }

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
  record::StepClock steps_;
};

}  // namespace lockstep::detail
