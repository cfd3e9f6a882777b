// The decisions of the launchers of several nodes: which nodes may take part, when a round begins and with which nodes,
// and where the nodes meet after the coordinator is lost. Pure functions: they map what is known to a decision and its
// human-readable reason.
#pragma once

#include <chrono>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "launch/meeting/node_meeting.h"
#include "membership/decision.h"
#include "membership/records.h"
#include "membership/succession.h"
#include "membership/witness.h"

namespace lockstep::launch {

// The options that must be the same on all nodes of a job. The number of ranks may differ between nodes.
struct JobConfig {
  std::string run_id;  // --rdzv-id
  int min_nodes = 1;   // --nnodes
  int max_nodes = 1;
  bool elastic = false;
  int max_restarts = 0;
  bool serve_store = true;  // the ranks use the store in which the nodes meet; else rank 0 serves one
  friend bool operator==(const JobConfig&, const JobConfig&) = default;
};

// A round as its coordinator decided it. Each node accepts at most one round of each number, and none that is older
// than the newest. A round is *established* when all of its nodes have accepted it; only then do they start their
// ranks.
struct RoundRecord {
  int number = -1;          // -1: none has begun
  std::string id = {};      // random: two coordinators may use one number, but at most one of the two is established
  std::string master = {};  // "host:port" of the store that the ranks use
  std::vector<NodeRecord> nodes = {};
  int base = -1;             // the newest established round that the coordinator knew
  std::string base_id = {};  // its id
  std::string witness = {};  // the register of its witness (membership/witness.h); empty: the first node breaks ties
};

// The same for the layer that ranks and nodes share: its numbers begin with 1.
membership::Member member_of(const NodeRecord& node);
membership::Generation generation_of(const RoundRecord& round);

// "node gpu7 (pid 4711)"
std::string describe(const NodeRecord& node);
// "gpu7 (pid 4711), gpu8 (pid 4712)"; "none" if there are no nodes.
std::string describe(std::span<const NodeRecord> nodes);
// "2" or "1:4".
std::string describe_node_count(const JobConfig& job);

// Why `node`, started with `theirs`, is refused by the job of `coordinator`; nothing if it is accepted.
std::optional<std::string> refuse_config(const JobConfig& job, const NodeRecord& coordinator, const JobConfig& theirs,
                                         const NodeRecord& node);
// The same for --node-rank: it must be below the number of nodes, and only one living node may claim it.
std::optional<std::string> refuse_node_rank(const JobConfig& job, const NodeRecord& node,
                                            std::span<const NodeRecord> others);

// A living node that is connected to the coordinator.
struct PresentNode {
  NodeRecord node;
  bool wants_round = false;  // waits in next_round(); else its ranks run, or it still stops them
};

struct MeetingView {
  JobConfig job;
  RoundRecord last;                                // the newest that a present node knows
  RoundRecord established;                         // the newest that all of its nodes have accepted
  std::vector<membership::Attested> others;        // accepted, too, and not established
  bool is_void = false;                            // `last` cannot be established any more
  std::set<std::string> ended;                     // ids of nodes that are attested to have ended
  membership::EndedWith ended_with = {};           // what they had accepted, as far as it is known here
  std::optional<membership::WitnessView> witness;  // if there is one, and it answers
  std::string fresh_id = {};                       // for a register of the witness
  std::set<std::string> awaited;                   // ids of nodes that are absent, but not given up
  std::vector<PresentNode> present;                // in order of arrival
  std::chrono::milliseconds since_arrival{0};      // of the last new node
  std::chrono::milliseconds last_call_timeout{30'000};
};

struct MeetingDecision {
  bool begins = false;
  bool has_quorum = false;              // of the last rounds (membership/succession.h); always before the first round
  int number = 0;                       // of the round that begins
  std::vector<NodeRecord> nodes;        // of the round that begins, by node rank
  std::string witness = {};             // its register of the witness
  std::vector<std::string> votes = {};  // registers in which the witness must vote for the round before it begins
  std::string reason;                   // why it begins or does not
};

// A round begins when all living nodes of the last one have stopped their ranks, at least min_nodes are present, and
// there is no reason to wait for more: max_nodes have arrived, or all nodes of the last round are back, or no new node
// arrived for last_call_timeout. In an elastic job no node stops its ranks: a node that arrived or was lost is added to
// or removed from the running job at once. A round never begins without a quorum.
MeetingDecision decide_round(const MeetingView& view);

// `nodes` in their order (those of the last round first, then by arrival), except that --node-rank takes precedence if
// it was given and is below their number.
std::vector<NodeRecord> order_nodes(std::vector<NodeRecord> nodes);

// The round from the view of node `id`; nothing if that node takes no part.
std::optional<Round> round_of(const std::string& id, int number, int restarts, const std::string& master,
                              std::span<const NodeRecord> nodes);

// What was found at an address where the coordinator may be.
struct Place {
  enum class Kind : std::uint8_t {
    silent,       // no answer: cut off, or the host is down
    unreachable,  // refused: the launcher may have ended, or a firewall refuses connections
    standby,      // a launcher's store, without a coordinator
    candidate,    // a coordinator that has no quorum yet
    meeting,      // a coordinator
  };
  Kind kind = Kind::silent;
  int term = 0;  // of a meeting's coordinator
  int established =
      -1;  // the number of the newest established round that a candidate, a coordinator or this node knows
  bool is_self = false;
  std::chrono::milliseconds silent_for{0};
};

struct PlaceChoice {
  enum class Kind : std::uint8_t { wait, join, coordinate };
  Kind kind = Kind::wait;
  std::size_t place = 0;  // to join
  std::string reason;
};

// Which store a node joins that has no coordinator, or only a candidate, or is a coordinator that waits for nodes.
// `places`: of the last round's nodes in node order, this one among them. A coordinator whose term is not older than
// `known_term` wins: that of the newest term, and of two the first. (With a witness, each half may have one: either
// would get the vote.) Otherwise a candidate wins that knows a newer established round than this node, whose list of
// nodes is outdated then. Otherwise the first node that is neither unreachable nor silent for `silent_timeout` becomes
// the coordinator: this node does, or joins that one. If there is another one elsewhere, at most one of them has a
// quorum.
PlaceChoice choose_place(std::span<const Place> places, int known_term, std::chrono::milliseconds silent_timeout);

// A warning if --nnodes was probably forgotten: the endpoint is another host, or Slurm allocated several hosts to the
// job, but --nnodes is 1.
std::optional<std::string> warn_of_single_node(int max_nodes, bool endpoint_is_elsewhere, const std::string& endpoint,
                                               int slurm_nodes);

}  // namespace lockstep::launch
