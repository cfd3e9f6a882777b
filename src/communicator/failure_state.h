// Whether a group has failed, and why. The first failure counts; all threads are notified at once. Thread-safe.
#pragma once

#include <atomic>
#include <mutex>

#include "base/unique_fd.h"
#include "lockstep/base/status.h"

namespace lockstep {

class FailureState {
 public:
  FailureState();

  // True if this was the first.
  bool set(Status reason);
  bool failed() const { return stop_.load(std::memory_order_acquire); }  // pairs with the release in set()
  // Ok while the group has not failed.
  Status reason() const;

  const std::atomic<bool>& stop_flag() const { return stop_; }
  // Becomes readable at the first failure, and stays so.
  int stop_fd() const { return stop_fd_.get(); }

 private:
  std::atomic<bool> stop_{false};
  UniqueFd stop_fd_;
  mutable std::mutex mutex_;
  Status reason_;  // guarded by mutex_
};

}  // namespace lockstep
