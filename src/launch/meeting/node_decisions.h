// What the launchers of several nodes decide: who may take part, when a round begins and with whom, and where the
// nodes meet after the one that kept the meeting is gone. Pure functions: what is known goes in, a decision and its
// reason for people come out.
#pragma once

#include <chrono>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "launch/meeting/node_meeting.h"

namespace lockstep::launch {

// What all nodes of a job must have been told alike. The number of ranks is each node's own matter.
struct JobConfig {
  std::string run_id;  // --rdzv-id
  int min_nodes = 1;   // --nnodes
  int max_nodes = 1;
  bool elastic = false;
  int max_restarts = 0;
  bool serve_store = true;  // the ranks' store is the one where the nodes meet; else rank 0 serves its own
  friend bool operator==(const JobConfig&, const JobConfig&) = default;
};

// "node gpu7 (pid 4711)"
std::string describe(const NodeRecord& node);
// "gpu7 (pid 4711), gpu8 (pid 4712)"; "nobody".
std::string describe(std::span<const NodeRecord> nodes);
// "2" or "1:4".
std::string describe_node_count(const JobConfig& job);

// Why `node`, started with `theirs`, is refused by the job that `keeper` opened; nothing where it is welcome.
std::optional<std::string> refuse_config(const JobConfig& job, const NodeRecord& keeper, const JobConfig& theirs,
                                         const NodeRecord& node);
// The same for --node-rank: it must be below the number of nodes, and only one living node may claim it.
std::optional<std::string> refuse_node_rank(const JobConfig& job, const NodeRecord& node,
                                            std::span<const NodeRecord> others);

// A living node at the meeting.
struct Attendant {
  NodeRecord node;
  bool wants_round = false;  // waits in next_round(); else its ranks run, or it still stops them
};

struct MeetingView {
  JobConfig job;
  int last_round = -1;                         // -1: none has begun
  std::vector<NodeRecord> last_nodes;          // of the last round, by node rank
  std::set<std::string> ended;                 // ids of those that are known to have ended
  std::set<std::string> awaited;               // ids of those that are not here, but are not given up either
  std::vector<Attendant> attendants;           // in order of arrival
  std::chrono::milliseconds since_arrival{0};  // of the last new node
  std::chrono::milliseconds last_call{30'000};
};

struct MeetingDecision {
  bool begins = false;
  bool has_quorum = false;        // of the last round's nodes (elastic/quorum.h); always before the first round
  std::vector<NodeRecord> nodes;  // of the round that begins, by node rank
  std::string reason;             // why it begins or does not
};

// A round begins when all living nodes of the last one have stopped their ranks, at least min_nodes are here, and
// nobody else is worth waiting for: max_nodes have come, or everybody of the last round is back, or no new node
// came for the time of the last call. In an elastic job nobody stops: a node that came or was lost is taken into or
// out of the running job at once. Never without a quorum.
MeetingDecision decide_round(const MeetingView& view);

// `nodes` in their order (those of the last round first, then by arrival); --node-rank wins where it was given and
// is below their number.
std::vector<NodeRecord> order_nodes(std::vector<NodeRecord> nodes);

// The round as the node `id` sees it; nothing where it takes no part.
std::optional<Round> round_of(const std::string& id, int number, int restarts, const std::string& master,
                              std::span<const NodeRecord> nodes);

// What was found where the meeting may be.
struct Place {
  enum class Kind : std::uint8_t {
    silent,     // no answer: cut off, or the host is down
    refused,    // nobody listens there: the launcher has ended
    standby,    // a launcher's store, without a meeting
    candidate,  // a meeting that has no quorum yet
    meeting,
  };
  Kind kind = Kind::silent;
  int term = 0;  // of a meeting
  bool is_self = false;
  std::chrono::milliseconds silent_for{0};
};

struct PlaceChoice {
  enum class Kind : std::uint8_t { wait, join, keep };
  Kind kind = Kind::wait;
  std::size_t place = 0;  // to join
  std::string reason;
};

// Where a node goes that has no meeting, or only a candidate's. `places`: of the last round's nodes in node order,
// this one among them. A meeting that is not older than `known_term` wins; else the first node that is not known to
// have ended, nor silent for `patience`, is to keep a new one: this one does, or goes where that one is.
PlaceChoice choose_place(std::span<const Place> places, int known_term, std::chrono::milliseconds patience);

// A warning where somebody seems to have forgotten --nnodes: the endpoint is another host, or Slurm gave several
// hosts to the job, but this launcher is told to be alone.
std::optional<std::string> warn_of_lonely_node(int max_nodes, bool endpoint_is_elsewhere, const std::string& endpoint,
                                               int slurm_nodes);

}  // namespace lockstep::launch
