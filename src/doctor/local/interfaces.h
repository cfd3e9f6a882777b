// The network interfaces and routes of this host, and the address at which its ranks will be reached.
#pragma once

#include <string>
#include <vector>

#include "doctor/finding.h"
#include "doctor/local/system.h"

namespace lockstep::doctor {

// `towards`: a host of the job; empty: none. LOCKSTEP_INTERFACE takes precedence.
std::vector<Finding> examine_interfaces(const System& system, const std::string& towards);

}  // namespace lockstep::doctor
