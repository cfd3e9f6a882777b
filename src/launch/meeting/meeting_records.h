// The records that launchers write into the store in which they meet. Pure functions; parsers accept any bytes, check
// lengths before they allocate, and return protocol_error for what no launcher of this version writes.
// Keys: docs/nodes.md.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "launch/meeting/node_decisions.h"
#include "launch/meeting/node_meeting.h"
#include "lockstep/base/status.h"

namespace lockstep::launch {

struct NodeFailure {
  int round = -1;
  std::string node;  // id
  RankFailure failure;
};

// Everything about a node, written by itself, so that the next coordinator needs no other source.
struct NodeState {
  NodeRecord record;
  JobConfig job;
  std::uint64_t connection = 0;  // counts its connections to stores; names its last will
  bool wants_round = false;
  int round = -1;  // the last one that it took part in
  bool finished = false;
  bool left = false;  // will not return
  std::vector<NodeFailure> failures = {};
  std::string over = {};           // why it ended the job; empty: it did not
  std::uint64_t restart_asks = 0;  // how often it asked for a restart to be counted
  // Its view of the job.
  int term = 0;
  int restarts = 0;
  int counted_round = -1;
  std::uint64_t counted_asks = 0;  // of its own restart_asks
  std::int64_t roster_number = -1;
  std::string accepted = {};  // the id of the newest round that it has accepted
  // Only if the coordinator may not know them.
  RoundRecord known_round = {};
  RoundRecord established = {};
};

// The state of the job, as its coordinator publishes it.
struct JobState {
  JobConfig job;
  int term = 0;           // counts coordinators that had a quorum
  bool official = false;  // the coordinator has or had a quorum; otherwise it is a candidate
  NodeRecord coordinator;
  RoundRecord round = {};
  RoundRecord established = {};  // the newest that all of its nodes have accepted
  // Accepted, too, and newer than the established one: by nodes that follow another coordinator, or before `round`,
  // which may be void.
  std::vector<membership::Attested> others = {};
  int restarts = 0;
  int counted_round = -1;                             // the round whose restart was counted last
  std::map<std::string, std::uint64_t> counted = {};  // restart_asks that were counted, by node id
  // Ids of nodes.
  std::vector<std::string> lost = {};     // of the round
  std::vector<std::string> ended = {};    // of the rounds that count; attested: true for ever
  membership::EndedWith ended_with = {};  // what they had accepted, as far as it is known; without members
  std::vector<std::string> finished = {};
  std::vector<NodeRecord> waiting = {};  // living nodes that take no part in the round
  std::vector<NodeFailure> failures = {};
  std::string over = {};      // why the job has ended; empty: it has not
  std::string progress = {};  // why the next round has not begun
  std::int64_t roster_number = -1;
};

std::string format(const NodeState& state);
std::string format(const JobState& state);
Result<NodeState> parse_node_state(std::string_view bytes);
Result<JobState> parse_job_state(std::string_view bytes);

// The number in a roster's first line; -1 if there is none.
std::int64_t roster_number(std::string_view roster);

// Keys.
inline const std::string kLaunchPrefix = "lockstep/launch/";
inline const std::string kNodePrefix = kLaunchPrefix + "node/";       // <id>: NodeState
inline const std::string kBeatPrefix = kLaunchPrefix + "beat/";       // <id>: a counter
inline const std::string kGonePrefix = kLaunchPrefix + "gone/";       // <id>/<connection>: a last will
inline const std::string kJobStateKey = "lockstep/launch_job_state";  // JobState
inline const std::string kStampKey = "lockstep/launch_stamp";  // "<version of the job state> <coordinator's counter>"
inline const std::string kOwnerKey = "lockstep/launch_owner";  // the id of the node whose store this is
inline const std::string kMovedKey = "lockstep/launch_moved";  // the address of the present coordinator
inline const std::string kRefusedPrefix = "lockstep/launch_refused/";  // <id>: why
inline const std::string kRosterPrefix = "lockstep/launch_rosters/";   // <id>: the newest roster of a node
inline const std::string kRosterKey = "lockstep/launch_roster";        // the newest of all

}  // namespace lockstep::launch
