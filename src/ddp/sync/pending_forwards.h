// Which forwards still wait for their backward, and what the backward that runs is to do.
//
// A forward decides whether its gradients are averaged or only accumulated (no_sync), which parameters it did not use,
// and the weight of this rank's samples. Several forwards may share one backward, and one forward may have several
// backwards. A forward whose graph was freed no longer waits: only this class holds its record then. Pure bookkeeping.
// Not thread-safe.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "ddp/sync/sample_weight.h"

namespace lockstep::detail {

struct ForwardRecord {
  bool synchronise = true;
  // Parameters that the outputs do not depend on, ascending; empty unless they were searched for.
  std::vector<std::size_t> unused = {};
  // Hooks on its outputs hold the record. False if it has no output that can carry a hook.
  bool hooked = true;
  // The factor of this rank's gradients; null: 1.
  SampleWeight weight = nullptr;
  // With a weight, inside join(): the factor of what was averaged before, which ranks without data do not bring again.
  double carry = 1;
};

class PendingForwards {
 public:
  using Record = std::shared_ptr<const ForwardRecord>;

  // A forward has ended.
  void add(Record record);
  // The backward that runs has reached this forward's outputs.
  void reach(const Record& record);

  enum class Mode { unknown, accumulate, synchronise };
  // What the backward that runs is to do: average, if any forward that it has reached wants that, or, if it has reached
  // none, any that waits; unknown, if there is none. (One that waits may never have a backward: a program may keep an
  // output on one rank.)
  Mode mode() const;
  // Parameters that none of these forwards used, ascending.
  std::vector<std::size_t> unused() const;
  // True while a forward waits for its backward; and one whose gradients are to be averaged.
  bool any() const { return !candidates().empty(); }
  bool synchronising() const;

  // True if any of them has a weight.
  bool weighted() const;

  // An inner derivative of this forward has a graph of its own, which may outlive the outputs: the forward waits until
  // all gradients were averaged.
  void derive(const Record& record);
  // What was reached was no backward: these forwards still wait for theirs.
  void forget_reached() { reached_.clear(); }
  // The backward is over: the forwards that it reached wait no longer.
  void end_backward();
  // All gradients were averaged: no forward waits any longer.
  void end_pass() {
    pending_.clear();
    derived_.clear();
  }

 private:
  // Those that the backward that runs may belong to.
  std::vector<Record> candidates() const;

  std::vector<Record> pending_;
  std::vector<Record> reached_;
  std::vector<Record> derived_;
};

}  // namespace lockstep::detail
