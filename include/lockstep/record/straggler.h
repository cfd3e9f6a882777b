// Which rank the others wait for, why, and what that costs.
//
// All ranks of a synchronous job have the same step time, whichever of them is slow. So ranks are compared by their own
// time: how long each computed in a step without waiting for the others.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "lockstep/record/phase.h"

namespace lockstep {

struct Straggler {
  int rank = 0;  // in the group
  std::string host = {};
  double last_fraction = 0;  // of the steps, in which it arrived last
  double cost_seconds = 0;   // of a step, for which all others wait for it
  double speedup = 1;        // of the job without it: 1.4 times as fast
  // Where it needs most of that time more than the other ranks. `backward`: before bucket `bucket` was complete.
  PhaseKind phase = PhaseKind::other;
  int bucket = -1;
  std::string parameters = {};  // of that bucket: "layer2.weight and 3 more"; empty: unknown
  double excess_seconds = 0;    // per step, in that phase
};

struct StragglerReport {
  int steps = 0;                     // that were compared; 0: too few yet
  double step_seconds = 0;           // median
  double communication_seconds = 0;  // of a step, for which even the last rank waits: for the network, not for a rank
  std::optional<Straggler> straggler = std::nullopt;  // none: no rank is consistently late

  // "rank 3 (host b) arrives last in 96 % of the steps, mainly because of its data loading (+48 ms); this costs 47 ms
  // of each 120 ms step: without it, the job would be 1.6 times as fast".
  std::string to_string() const;
};

}  // namespace lockstep
