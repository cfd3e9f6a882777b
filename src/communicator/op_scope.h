// The WaitScope of one collective: its deadline, the group's failure, warnings, and the search for
// the ranks that have not reached it.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "collectives/descriptor.h"
#include "communicator/group_core.h"
#include "communicator/operation_timer.h"
#include "transport/wait_scope.h"

namespace lockstep {

class OpScope final : public WaitScope {
 public:
  OpScope(GroupCore& core, const OpDescriptor& op, OperationTimer& timer)
      : WaitScope(core.failure().stop_flag(), core.failure().stop_fd()), core_(core), op_(op), timer_(timer) {}
  ~OpScope() override {
    if (told_peers_) core_.stop_waiting();
  }

  Deadline deadline() override { return timer_.deadline(); }
  Status check(std::span<const int> waiting_for) override;

 private:
  Status timeout_error(std::span<const int> waiting_for);
  void warn_when_due(std::span<const int> waiting_for);
  std::string name_missing(std::span<const int> waiting_for) const;

  GroupCore& core_;
  const OpDescriptor& op_;
  OperationTimer& timer_;
  Deadline::Duration next_warning_ = core_.options().warn_after;
  std::optional<Deadline::Clock::time_point> told_peers_;
};

}  // namespace lockstep
