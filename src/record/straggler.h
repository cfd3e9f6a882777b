// Finds the straggler in recorded steps. Pure.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "lockstep/record/straggler.h"
#include "record/record_reader.h"

namespace lockstep::record {

struct RankSteps {
  int rank = 0;
  std::string host = {};
  std::vector<RecordedStep> steps = {};
};

// Compares the steps that all ranks have, by number. At least ten of them, and two ranks, or nothing is compared.
//
// A rank's excess in a step is how much longer its own time is than that of every other rank, if it is the longest. On
// a busy machine each rank is the last at times; so what counts is a rank's mean excess beyond that of the other ranks.
// The largest tenth is left out: one step with a long pause is no straggler. A rank is named if this costs at least
// 5 % of a step, is beyond what chance explains (3 standard errors), and if the rank is the last in at least a
// quarter of the steps.
StragglerReport find_straggler(std::span<const RankSteps> ranks);

}  // namespace lockstep::record
