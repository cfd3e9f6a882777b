// The state of a job as the page receives it. Pure.
#pragma once

#include <cstdint>
#include <string>

#include "dashboard/job_state.h"

namespace lockstep::dashboard {

// One line of JSON. The page has seen everything up to tick `since` (0: nothing): of curves and events, only later ones
// are included, or all of a curve that was thinned out meanwhile ("reset"). Invalid UTF-8 is replaced; numbers that are
// not finite become null.
std::string state_json(const JobState& state, std::uint64_t since);

}  // namespace lockstep::dashboard
