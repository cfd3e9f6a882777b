// When an operation began and by when it must be complete.
#pragma once

#include <algorithm>
#include <chrono>

#include "lockstep/base/deadline.h"

namespace lockstep {

// The clock is first read when a value is needed: an operation that never waits long, as most do not,
// saves reading it, and one that does starts counting at most a spin (50 us) late. Used by one
// thread at a time.
class OperationTimer {
 public:
  explicit OperationTimer(std::chrono::milliseconds timeout) : timeout_(timeout) {}

  // Starts counting, unless it has already started.
  Deadline::Clock::time_point start() {
    if (!has_started()) started_ = Deadline::Clock::now();
    return started_;
  }
  bool has_started() const { return started_ != Deadline::Clock::time_point::min(); }
  Deadline::Duration elapsed() {
    const auto started = start();
    return Deadline::Clock::now() - started;
  }
  Deadline deadline() {
    const auto started = start();
    // Rounded down, so that the sum does not overflow.
    const auto longest =
        std::chrono::duration_cast<std::chrono::milliseconds>(Deadline::Clock::time_point::max() - started);
    return Deadline::at(started + std::min(timeout_, longest));
  }

 private:
  std::chrono::milliseconds timeout_;
  Deadline::Clock::time_point started_ = Deadline::Clock::time_point::min();
};

}  // namespace lockstep
