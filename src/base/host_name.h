// The name of this machine, for messages and records.
#pragma once

#include <string>

namespace lockstep {

// As gethostname(2) returns it; "unknown" if it fails.
std::string host_name();

}  // namespace lockstep
