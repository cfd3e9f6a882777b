// From a placement to the store where the ranks meet.
#pragma once

#include "base/net/auth.h"
#include "lockstep/base/deadline.h"
#include "lockstep/base/status.h"
#include "rendezvous/environment.h"
#include "rendezvous/rendezvous.h"

namespace lockstep {

// Rank 0 serves the store of env:// and tcp://, unless the placement says that it is served; the
// others try to reach it until the deadline. A world of one rank whose store nobody serves gets a
// store of its own. Each of these is an error that says what to do: the master cannot be resolved,
// cannot be reached in time, is not this host where rank 0 is, its port is in use, it is not
// loopback and there is no secret, its secret differs.
Result<MeetingPoint> open_meeting_point(const Placement& placement, const Secret& secret, Deadline deadline);

}  // namespace lockstep
