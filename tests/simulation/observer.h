// What the rosters of all hosts hold, read from outside of the simulation.
#pragma once

#include <string>
#include <vector>

#include "membership/records.h"
#include "simulation/process.h"

namespace lockstep::simulation {

// From all rosters whose paths begin with `roster`: one entry for each that has accepted a generation, or a round.
std::vector<membership::Generation> accepted_generations(Simulation& simulation, const std::string& roster);

// Those of them that are newer than `generation`.
std::vector<membership::Generation> accepted_after(Simulation& simulation, const std::string& roster,
                                                   const membership::Generation& generation);

}  // namespace lockstep::simulation
