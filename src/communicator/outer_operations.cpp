#include "communicator/outer_operations.h"

namespace lockstep {
namespace {

using Clock = Deadline::Clock;

// Other ranks look at intervals, too: after this long those that have reached the operation have said so.
constexpr Deadline::Duration kAnswers = 3 * OuterOperations::kLook;

}  // namespace

void OuterOperations::completed(const OpDescriptor& op) {
  const std::lock_guard lock(mutex_);
  if (wait_ && wait_->op.sequence <= op.sequence) wait_.reset();
  core_->set_completed(op);
}

Status OuterOperations::look(const std::optional<Pending>& oldest) {
  const std::lock_guard lock(mutex_);
  if (!oldest || (wait_ && wait_->op.sequence != oldest->op.sequence)) {
    wait_.reset();
    late_.reset();
  }
  if (!oldest) return core_->progress().any_waits() ? core_->progress().compare_completed() : Status();
  const Deadline::Duration waited = Clock::now() - oldest->issued;
  if (waited < LongWait::long_wait(core_->topology())) return {};
  if (!wait_) wait_.emplace(*core_, oldest->op);
  // At the deadline too, the peers first have a moment to say that they wait.
  if (oldest->deadline.expired() && !late_) late_ = Clock::now();
  const bool final = late_ && Clock::now() - *late_ >= kAnswers && wait_->wait.peers_have_answered();
  const Deadline deadline = final ? oldest->deadline : Deadline::at(Clock::time_point::max());
  return core_->progress().with_history(wait_->wait.check(waited, deadline, {}));
}

}  // namespace lockstep
