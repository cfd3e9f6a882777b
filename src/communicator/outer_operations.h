// The collectives of another engine (Gloo, NCCL, MPI), which moves the bytes while this group watches the ranks. How
// far each rank has come travels as for collectives of our own: in the host's arena, and to other hosts in the reports
// of first ranks. So a rank that waits can name those that are missing, and ranks that call different operations find
// out.
#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <optional>

#include "collectives/descriptor.h"
#include "communicator/group_core.h"
#include "communicator/long_wait.h"

namespace lockstep {

// The group runs no collectives of its own. Thread-safe.
class OuterOperations {
 public:
  explicit OuterOperations(std::shared_ptr<GroupCore> core) : core_(std::move(core)) {}

  // Completed here, in the order of their numbers, which begin with 1.
  void completed(const OpDescriptor& op);

  // No more will follow: ranks that wait for one learn it.
  void leave() { core_->announce_leave(); }

  // A collective that is not complete.
  struct Pending {
    OpDescriptor op;
    Deadline::Clock::time_point issued;
    Deadline deadline;
  };
  // To be called every kLook while `oldest`, the oldest of them, is the same; and now and then if there is none,
  // because another rank may wait in something else than was called here. Ok: nothing is wrong as far as is known.
  // Otherwise why it cannot complete: the group's failure, a mismatch, a rank that has left, or the deadline, with the
  // ranks that are missing.
  Status look(const std::optional<Pending>& oldest);
  static constexpr std::chrono::milliseconds kLook{100};

 private:
  const std::shared_ptr<GroupCore> core_;

  struct Wait {
    Wait(GroupCore& core, const OpDescriptor& waited_for) : op(waited_for), wait(core, op) {}
    const OpDescriptor op;
    LongWait wait;
    std::optional<Deadline::Clock::time_point> late = {};  // since when the deadline has been seen to pass
  };
  std::mutex mutex_;
  std::optional<Wait> wait_;  // guarded by mutex_
};

}  // namespace lockstep
