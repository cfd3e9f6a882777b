#include <lockstep/communicator/work.h>

#include <utility>

#include "communicator/work_state.h"
#include "record/recorder.h"

namespace lockstep {
namespace detail {

void WorkState::complete(Status outcome) {
  std::vector<std::function<void(const Status&)>> continuations;
  {
    const std::lock_guard lock(mutex_);
    outcome_ = std::move(outcome);
    settled_ = true;  // continuations added from now on run at once
    continuations = std::move(continuations_);
  }
  for (const auto& continuation : continuations) continuation(outcome_);
  continuations.clear();  // a waiter that returns is the only owner of what they held
  {
    const std::lock_guard lock(mutex_);
    done_.store(true, std::memory_order_release);  // pairs with the acquire in done()
  }
  completed_.notify_all();
}

Status WorkState::wait(Deadline deadline) {
  if (done()) return wait_unrecorded(deadline);
  const std::uint64_t began = record::now_ticks();
  Status status = wait_unrecorded(deadline);
  record::thread_times().blocked += record::now_ticks() - began;
  return status;
}

Status WorkState::wait_unrecorded(Deadline deadline) {
  std::unique_lock lock(mutex_);
  const auto is_done = [this] { return done(); };
  if (deadline.when() == Deadline::Clock::time_point::max()) {
    completed_.wait(lock, is_done);
  } else if (!completed_.wait_until(lock, deadline.when(), is_done)) {
    return Status(StatusCode::timed_out, "the operation is still running; only this wait has ended");
  }
  if (!arrival_ || !outcome_.ok()) return outcome_;
  lock.unlock();
  return arrival_();
}

Status WorkState::outcome() const {
  const std::lock_guard lock(mutex_);
  return outcome_;
}

void WorkState::then(std::function<void(const Status&)> continuation) {
  {
    const std::lock_guard lock(mutex_);
    if (!settled_) {
      continuations_.push_back(std::move(continuation));
      return;
    }
  }
  continuation(outcome_);
}

}  // namespace detail

namespace {

const Deadline kNever = Deadline::at(Deadline::Clock::time_point::max());

}  // namespace

void Work::wait() const {
  if (state_) throw_if_error(state_->wait(kNever));
}

Status Work::wait(Deadline deadline) const { return state_ ? state_->wait(deadline) : Status(); }

bool Work::is_completed() const { return !state_ || state_->done(); }

Status Work::error() const { return state_ && state_->done() ? state_->outcome() : Status(); }

void Work::then(std::function<void(const Status&)> continuation) const {
  if (state_) {
    state_->then(std::move(continuation));
  } else {
    continuation(Status());
  }
}

}  // namespace lockstep
