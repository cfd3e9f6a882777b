// The state of a job in Prometheus' text format. Pure.
#pragma once

#include <string>

#include "dashboard/job_state.h"

namespace lockstep::dashboard {

std::string prometheus_text(const JobState& state);

}  // namespace lockstep::dashboard
