// One simulated history of a job of several nodes that restarts: launchers that meet (launch/meeting), their guards,
// and faults. The ranks are a model: a round trains while all of its nodes are in it and connected.
#pragma once

#include <cstdint>

#include "simulation/history.h"

namespace lockstep::simulation {

Outcome run_node_history(std::uint64_t seed, const HistoryOptions& options);

}  // namespace lockstep::simulation
