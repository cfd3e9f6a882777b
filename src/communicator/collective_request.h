// Checks the arguments of a collective and describes it for the lane.
#pragma once

#include <chrono>

#include "communicator/collective_lane.h"
#include "lockstep/collectives/operation.h"

namespace lockstep {

// Throws Error(invalid_argument), before anything is issued, if `operation` cannot be right on rank `rank` of `size`.
// `timeout` is for an operation that sets none of its own. Not for send and recv.
IssuedCollective make_collective_request(const Operation& operation, int rank, int size,
                                         std::chrono::milliseconds timeout);

}  // namespace lockstep
