// The line that the launcher prints for each generation of an elastic job: which of its workers has which rank. Pure.
#pragma once

#include <map>
#include <string>

#include "base/process_state.h"
#include "membership/records.h"

namespace lockstep::launch {

// "generation 3: 4 ranks: 0 = worker 2, 1 = worker 0; 2, 3 on gpu2". `workers`: the processes of this node, by local
// rank.
std::string describe_generation(const membership::Generation& generation,
                                const std::map<int, ProcessIdentity>& workers);

}  // namespace lockstep::launch
