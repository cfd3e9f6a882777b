// An elastic job on this node: a rank that dies is replaced while the others continue.
#pragma once

#include "launch/meeting/node_meeting.h"
#include "launch/round_supervisor.h"

namespace lockstep::launch {

// Starts the ranks and returns when none runs and none is to be replaced. finished: the last rank to end succeeded,
// even if others were lost before; failed (with the ends that ended the job), interrupted and not_started as in
// supervise_round. Meanwhile copies rosters between the ranks of this node and the other nodes. A node that joins a
// running job (a later round, and there is a roster) starts all its ranks as newcomers.
RoundResult supervise_elastic(Job& job, NodeMeeting& meeting, const Round& round, const StopSignals& signals);

}  // namespace lockstep::launch
