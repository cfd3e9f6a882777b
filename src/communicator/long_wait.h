// A wait for one collective, from when it takes long: tells the peers, compares their calls with this one, warns, and
// at the deadline names the ranks that are missing.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "collectives/descriptor.h"
#include "communicator/group_core.h"

namespace lockstep {

// Used by the thread that runs collectives.
class LongWait {
 public:
  // Both must outlive this.
  LongWait(GroupCore& core, const OpDescriptor& op) : core_(core), op_(op) {}
  // The peers learn that it is over.
  ~LongWait() {
    if (told_peers_) core_.stop_waiting();
  }
  LongWait(const LongWait&) = delete;
  LongWait& operator=(const LongWait&) = delete;

  // Ok: continue to wait. Otherwise why the collective cannot complete: a mismatch, a rank that has left, the deadline.
  // `waited`: so far. `waiting_for`: ranks from which something is missing, as far as the caller knows. `has_time`: the
  // deadline does not end the wait yet.
  Status check(Deadline::Duration waited, Deadline deadline, std::span<const int> waiting_for, bool has_time = false);

  // Shorter waits are normal and not worth a message to other hosts.
  static Deadline::Duration long_wait(const Topology& topology);
  // True once the peers know of this wait and have had the time to say that they wait too.
  bool peers_have_answered() const;

 private:
  Status timeout_error(Deadline::Duration waited, std::span<const int> waiting_for) const;
  void warn_when_due(Deadline::Duration waited, Deadline deadline, std::span<const int> waiting_for);
  std::string name_missing(std::span<const int> waiting_for) const;

  GroupCore& core_;
  const OpDescriptor& op_;
  Deadline::Duration next_warning_ = core_.options().warn_after;
  std::optional<Deadline::Clock::time_point> told_peers_;
};

}  // namespace lockstep
