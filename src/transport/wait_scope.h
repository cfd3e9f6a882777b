// When a wait on behalf of one operation must end: at its deadline, or when the group fails.
//
// The group makes one for each operation. Code that waits calls `stopped()` in every turn of a
// short loop (one relaxed load), and `check()` at least every 100 ms once it waits longer.
#pragma once

#include <atomic>
#include <span>

#include "lockstep/base/deadline.h"
#include "lockstep/base/status.h"

namespace lockstep {

class WaitScope {
 public:
  WaitScope(const std::atomic<bool>& stop, int stop_fd) : stop_(stop), stop_fd_(stop_fd) {}
  virtual ~WaitScope() = default;

  // True once the group has failed or was aborted; the wait must end, and check() returns the reason.
  // Acquire: pairs with the release store that follows the recording of the reason.
  bool stopped() const { return stop_.load(std::memory_order_acquire); }
  // An eventfd that becomes readable (and stays so) when stopped() becomes true: add it to poll sets.
  int stop_fd() const { return stop_fd_; }
  // By when the operation must be complete.
  virtual Deadline deadline() = 0;

  // Ok: continue to wait. Otherwise the wait ends with this error: the group's failure, or timed_out
  // at the deadline. `waiting_for`: ranks from which something is missing; a warning names them
  // if the wait takes long.
  virtual Status check(std::span<const int> waiting_for) = 0;

 private:
  const std::atomic<bool>& stop_;
  int stop_fd_;
};

}  // namespace lockstep
