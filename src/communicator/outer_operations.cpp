#include "communicator/outer_operations.h"

namespace lockstep {
namespace {

using Clock = Deadline::Clock;

// Other ranks look at intervals, too: after this long those that have reached the operation have said so.
constexpr Deadline::Duration kAnswers = 5 * OuterOperations::kLook;

}  // namespace

void OuterOperations::completed(const OpDescriptor& op) {
  const std::lock_guard lock(mutex_);
  if (wait_ && wait_->op.sequence <= op.sequence) wait_.reset();
  core_->set_completed(op);
}

Status OuterOperations::look(const std::optional<Pending>& oldest) {
  const std::lock_guard lock(mutex_);
  core_->adopt_failure_of_host();
  if (core_->failure().failed()) return core_->failure().reason();
  if (!oldest || (wait_ && wait_->op.sequence != oldest->op.sequence)) wait_.reset();
  if (!oldest) return core_->progress().any_waits() ? core_->progress().compare_completed() : Status();
  const Deadline::Duration waited = Clock::now() - oldest->issued;
  if (waited < LongWait::long_wait(core_->topology())) return {};
  if (!wait_) wait_.emplace(*core_, oldest->op);
  // At the deadline too, the peers first have a moment to say that they wait.
  if (oldest->deadline.expired() && !wait_->late) wait_->late = Clock::now();
  const bool has_time = !wait_->late || Clock::now() - *wait_->late < kAnswers || !wait_->wait.peers_have_answered();
  return core_->progress().with_history(wait_->wait.check(waited, oldest->deadline, {}, has_time));
}

}  // namespace lockstep
