// When an operation began and until when it may take.
#pragma once

#include <algorithm>
#include <chrono>

#include "lockstep/base/deadline.h"

namespace lockstep {

// The clock is read when it is first asked for: an operation that never waits long, as most do not,
// saves the reading, and one that does starts counting at most a spin (50 us) late. Used by one
// thread at a time.
class OperationTimer {
 public:
  explicit OperationTimer(std::chrono::milliseconds timeout) : timeout_(timeout) {}

  // Starts counting, unless it counts already.
  Deadline::Clock::time_point start() {
    if (started_ == Deadline::Clock::time_point::min()) started_ = Deadline::Clock::now();
    return started_;
  }
  Deadline::Duration elapsed() {
    const auto started = start();
    return Deadline::Clock::now() - started;
  }
  Deadline deadline() {
    const auto started = start();
    const auto longest = Deadline::Clock::time_point::max() - started;
    return Deadline::at(started + std::min<Deadline::Duration>(timeout_, longest));
  }

 private:
  std::chrono::milliseconds timeout_;
  Deadline::Clock::time_point started_ = Deadline::Clock::time_point::min();
};

}  // namespace lockstep
