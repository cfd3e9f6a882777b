#include "communicator/failure_state.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cstdint>
#include <utility>

namespace lockstep {

FailureState::FailureState() : stop_fd_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

bool FailureState::set(Status reason) {
  {
    const std::lock_guard lock(mutex_);
    if (!reason_.ok()) return false;
    reason_ = std::move(reason);
    stop_.store(true, std::memory_order_release);  // pairs with the acquire in failed() and WaitScope::stopped()
  }
  const std::uint64_t one = 1;
  if (::write(stop_fd_.get(), &one, sizeof(one)) < 0) {
    // Cannot happen with a new eventfd; threads that poll also check the flag every 100 ms.
  }
  return true;
}

Status FailureState::reason() const {
  const std::lock_guard lock(mutex_);
  return reason_;
}

}  // namespace lockstep
