// One round of a job that is not elastic: all ranks of this node, from their start until all have ended.
#pragma once

#include <string>
#include <vector>

#include "launch/meeting/node_meeting.h"
#include "launch/process/rank_set.h"

namespace lockstep::launch {

struct RoundResult {
  enum class Kind : std::uint8_t {
    finished,          // all ranks of all nodes succeeded
    failed,            // a rank of this node failed
    failed_elsewhere,  // a rank of another node failed; its end is among `ends`
    node_lost,         // another node was lost; `reason`
    interrupted,       // the launcher got a signal
    not_started,       // a rank could not be started; `error`
  };
  Kind kind = Kind::finished;
  std::vector<RankEnd> ends = {};
  std::string reason = {};
  Status error = {};
};

// Starts the ranks and returns when none of them runs any more. Events on other nodes are read from the meeting; events
// on this node are reported to it.
RoundResult supervise_round(Job& job, NodeMeeting& meeting, const Round& round, const StopSignals& signals);

}  // namespace lockstep::launch
