// The WaitScope of one collective: its deadline, the group's failure, and what follows from a long wait.
#pragma once

#include <span>

#include "collectives/descriptor.h"
#include "communicator/group_core.h"
#include "communicator/long_wait.h"
#include "communicator/operation_timer.h"
#include "transport/wait_scope.h"

namespace lockstep {

class OpScope final : public WaitScope {
 public:
  OpScope(GroupCore& core, const OpDescriptor& op, OperationTimer& timer)
      : WaitScope(core.failure().stop_flag(), core.failure().stop_fd()), core_(core), timer_(timer), wait_(core, op) {}

  Deadline deadline() override { return timer_.deadline(); }
  Status check(std::span<const int> waiting_for) override {
    core_.adopt_failure_of_host();
    if (stopped()) return core_.failure().reason();
    return wait_.check(timer_.elapsed(), deadline(), waiting_for);
  }

 private:
  GroupCore& core_;
  OperationTimer& timer_;
  LongWait wait_;
};

}  // namespace lockstep
