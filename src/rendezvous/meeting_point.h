// Opens the store of a placement.
#pragma once

#include "base/net/auth.h"
#include "lockstep/base/deadline.h"
#include "lockstep/base/status.h"
#include "rendezvous/environment.h"
#include "rendezvous/rendezvous.h"

namespace lockstep {

// Rank 0 serves the store of env:// and tcp://, unless it is already served; the others try to reach it until the
// deadline. A world of one rank whose store is not served gets a store of its own. Each of these is an error whose
// message explains what to do: the master cannot be resolved, cannot be reached in time, is not the host of rank 0, its
// port is in use, it is not loopback and there is no secret, its secret differs.
Result<MeetingPoint> open_meeting_point(const Placement& placement, const Secret& secret, Deadline deadline);

}  // namespace lockstep
