// The handle of an asynchronous operation.
#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "lockstep/base/deadline.h"
#include "lockstep/base/status.h"

namespace lockstep {

namespace detail {
class WorkState;
}

// Copies refer to the same operation. All calls are thread-safe. Destroying the last copy does not
// cancel the operation: its buffers must stay valid until it is complete.
//
// An operation on tensors of a device that has streams (CUDA) is complete for the host as soon as it is in the device's
// queue. wait() then makes the calling thread's current stream wait for it and does not block the host; work that the
// thread queues afterwards sees the result.
class Work {
 public:
  Work() = default;
  explicit Work(std::shared_ptr<detail::WorkState> state) : state_(std::move(state)) {}

  // Blocks until the operation is complete; throws Error if it failed. Always returns, because
  // every operation has a deadline of its own.
  void wait() const;
  // Blocks until the operation is complete or the deadline has passed. timed_out then means only
  // that the caller stopped waiting; the operation continues.
  Status wait(Deadline deadline) const;
  // True once complete, successfully or not. Never blocks.
  bool is_completed() const;
  // Ok while the operation runs and after success; the error after a failure.
  Status error() const;
  // Calls `continuation` once with the outcome: immediately on this thread if the operation is already
  // complete, else on the thread that completes it, before any wait() returns. It must be short, must
  // not throw, and must not wait for other operations of the group.
  void then(std::function<void(const Status&)> continuation) const;

 private:
  std::shared_ptr<detail::WorkState> state_;
};

}  // namespace lockstep
