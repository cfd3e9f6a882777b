// Creates the NodeMeeting that a job needs.
#pragma once

#include <memory>

#include "launch/job.h"
#include "launch/meeting/node_meeting.h"

namespace lockstep::launch {

// Opens the stores and ports that the nodes need to meet; warns if --nnodes was probably forgotten. already_exists: the
// port is in use; invalid_argument: options that cannot work here; unauthenticated: several nodes need a secret.
Result<std::unique_ptr<NodeMeeting>> make_meeting(Job& job);

}  // namespace lockstep::launch
