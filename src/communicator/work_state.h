// The state that the copies of a Work share.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <utility>
#include <vector>

#include "lockstep/base/deadline.h"
#include "lockstep/base/status.h"

namespace lockstep::detail {

class WorkState {
 public:
  // Before this state is shared: for operations on a device, which are complete when they are in its queue.
  // Every wait that finds the operation complete without an error calls `arrival`, on its own thread, and returns
  // its result: `arrival` makes the waiting thread's stream wait for the operation.
  void set_arrival(std::function<Status()> arrival) { arrival_ = std::move(arrival); }
  // Once, by the thread that ran the operation.
  void complete(Status outcome);

  bool done() const { return done_.load(std::memory_order_acquire); }  // pairs with the release in complete()
  // The outcome, or timed_out if the operation is not complete by the deadline.
  Status wait(Deadline deadline);
  Status outcome() const;
  void then(std::function<void(const Status&)> continuation);

 private:
  Status wait_unrecorded(Deadline deadline);

  std::function<Status()> arrival_;  // constant once shared
  std::atomic<bool> done_{false};
  mutable std::mutex mutex_;
  std::condition_variable completed_;
  bool settled_ = false;                                           // guarded by mutex_
  Status outcome_;                                                 // guarded by mutex_
  std::vector<std::function<void(const Status&)>> continuations_;  // guarded by mutex_
};

}  // namespace lockstep::detail
