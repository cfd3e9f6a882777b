// Cores, control group, NUMA nodes, and the threads of each rank.
#pragma once

#include <vector>

#include "doctor/finding.h"
#include "doctor/local/system.h"

namespace lockstep::doctor {

// Processors that the control group of this process may use, or 0 if it has no limit. Versions 1 and 2.
double processor_quota(const System& system);

// `cores`: that this process may use. `ranks_here`: on this host. Pure, but for what `system` reads.
std::vector<Finding> judge_processors(const System& system, int cores, int ranks_here);

}  // namespace lockstep::doctor
