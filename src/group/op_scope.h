// The WaitScope of one collective: its deadline, the group's failure, warnings, and the search for
// whoever does not come.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "collectives/descriptor.h"
#include "group/group_core.h"
#include "transport/wait_scope.h"

namespace lockstep {

class OpScope final : public WaitScope {
 public:
  OpScope(GroupCore& core, const OpDescriptor& op, Deadline deadline)
      : WaitScope(core.failure().stop_flag(), core.failure().stop_fd(), deadline), core_(core), op_(op) {}
  ~OpScope() override {
    if (told_peers_) core_.stop_waiting();
  }

  Status check(std::span<const int> waiting_for) override;

 private:
  Status timeout_error(std::span<const int> waiting_for) const;
  void warn_when_due(std::span<const int> waiting_for);
  std::string name_missing(std::span<const int> waiting_for) const;

  GroupCore& core_;
  const OpDescriptor& op_;
  const Deadline::Clock::time_point started_ = Deadline::Clock::now();
  Deadline::Duration next_warning_ = core_.options().warn_after;
  std::optional<Deadline::Clock::time_point> told_peers_;
};

}  // namespace lockstep
