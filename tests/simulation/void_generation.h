// Faults in an order that random ones hardly ever have: a generation becomes void while a process that has the state of
// the one before it is stopped. If the void generation hides the older one, committed steps are lost.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "membership/records.h"
#include "simulation/process.h"

namespace lockstep::simulation {

struct VoidGenerationOptions {
  std::string roster;                                   // the path of each host's roster
  std::function<std::vector<Process*>()> living;        // the ranks
  std::function<membership::Generation()> established;  // the newest generation that has trained
};

// At `begin`, a rank of the established generation is stopped, and another one killed. When the others have
// accepted a generation with newcomers, all of them that have the state are killed. Then the stopped one continues.
void schedule_void_generation(Simulation& simulation, const VoidGenerationOptions& options, Time begin);

struct VoidRoundOptions {
  std::string roster;                                   // what the path of each launcher's roster begins with
  std::function<membership::Generation()> established;  // the newest round
  std::function<Process*(const membership::Member& node)> launcher;
  std::function<void()> start_newcomer;
  std::function<Process*()> newcomer;  // the launcher that was started last
};

// The same for nodes. At `begin`, the first node c of the established round is stopped. The others go on in a round X
// of a and b. Then c and b are cut off from each other, b is stopped, too, and a decides a round with a new node d. As
// soon as a has accepted it, d is stopped, and both end a little later: if d had not accepted it, the round is void.
// Now b and c continue. Each can ask the guards of a and d, but not the other one. Without a quorum of X, c must not go
// on.
void schedule_void_round(Simulation& simulation, const VoidRoundOptions& options, Time begin);

}  // namespace lockstep::simulation
