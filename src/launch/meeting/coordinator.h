// The coordinator of a job's nodes: reads the nodes' announcements, detects lost nodes, counts restarts, begins rounds,
// and publishes the result as one JobState that all nodes follow. Uses no network and no clock: the content of the
// store, the time and the function that asks for attested ends are arguments. Used by one thread.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "launch/meeting/meeting_records.h"
#include "launch/meeting/node_decisions.h"
#include "membership/attester.h"

namespace lockstep::launch {

struct CoordinatorOptions {
  std::chrono::milliseconds last_call_timeout{30'000};
  std::chrono::milliseconds silent_timeout{10'000};  // a node that is silent this long is lost
};

class Coordinator {
 public:
  using Clock = std::chrono::steady_clock;
  // If the node is attested to have ended: the newest rounds that it had accepted.
  using FindEnd = std::function<std::optional<membership::Attestation>(const membership::Member& node)>;

  // `known`: what this node knew of the job when the previous coordinator was lost; default-constructed for a new job.
  Coordinator(NodeRecord self, const JobConfig& job, JobState known, const CoordinatorOptions& options,
              Clock::time_point now);

  // `pairs`: all keys under kLaunchPrefix. Updates job_state() and refusals(). Calls `find_end` at most once, because
  // it may take long if a host does not answer.
  void update(const std::map<std::string, std::string>& pairs, Clock::time_point now, const FindEnd& find_end);

  const JobState& job_state() const { return job_state_; }
  // What the witness answered before the next update(), and how to ask it for a vote: true if it voted for the round.
  using Vote = std::function<bool(const std::string& witness_register, const membership::Generation& round)>;
  void set_witness(std::optional<membership::WitnessView> witness, Vote vote) {
    witness_ = std::move(witness);
    vote_ = std::move(vote);
  }
  // The id of the node that offers the newest roster, and the roster's number; -1: none.
  std::pair<std::string, std::int64_t> newest_roster() const;
  // Call when the roster with that number is in the store for all nodes.
  void set_roster_number(std::int64_t number) { job_state_.roster_number = number; }
  // Why nodes are refused, by id; they are never in a round.
  const std::map<std::string, std::string>& refusals() const { return refusals_; }
  // False: this part of the job may not continue; there may already be another coordinator.
  bool has_quorum() const { return has_quorum_; }
  // True while nodes wait for a round that cannot begin.
  bool waits_for_nodes() const { return waits_for_nodes_; }
  // True while a round has been decided that not all of its nodes have accepted yet.
  bool is_forming() const { return job_state_.round.id != job_state_.established.id; }
  // True once every other node has left or is lost.
  bool is_alone() const;

 private:
  struct Peer {
    NodeState state;
    std::string beat;
    Clock::time_point beaten_at;
    Clock::time_point arrived_at;
    bool lives = false;
    bool on_hold = false;  // claims the node rank of another that may have ended
  };

  void read_announcements(const std::map<std::string, std::string>& pairs, Clock::time_point now);
  void read_announcement(const std::string& id, const std::string& bytes,
                         const std::map<std::string, std::string>& pairs, Clock::time_point now);
  void read_peer(const std::string& id, const NodeState& state, const std::map<std::string, std::string>& pairs,
                 Clock::time_point now);
  void adopt_knowledge();
  void refuse_claims();
  void adopt_round(const RoundRecord& round);
  void adopt_accepted(const membership::Generation& accepted, bool may_hide_others = false);
  // Removes rounds that the established one has replaced, and those of which no node can become a member any more.
  void forget_others();
  void establish();
  // True if the round cannot be established any more: a node that has not accepted it is lost, or cannot accept it.
  bool is_void() const;
  // The nodes of all rounds of which the next one may need a quorum.
  std::vector<membership::Member> nodes_that_count() const;
  void ask_for_ends(Clock::time_point now, const FindEnd& find_end);
  void notice_losses(Clock::time_point now);
  void count_restarts();
  void decide(Clock::time_point now);
  void begin_round(const MeetingDecision& decision);
  void summarize();
  bool lives(const std::string& id) const;
  bool takes_part(const std::string& id) const;
  // True if the node waits for the round after this one. False for a node of this round that has not entered it yet:
  // its request was for this round.
  bool wants_next_round(const NodeState& state) const;

  const NodeRecord self_;
  const CoordinatorOptions options_;
  const Clock::time_point began_at_;
  Clock::time_point updated_at_;
  Clock::time_point last_arrival_;
  JobState job_state_;
  std::map<std::string, Peer> peers_;                  // by id
  std::vector<std::string> arrivals_;                  // ids of peers in order of arrival
  std::set<std::string> lost_;                         // of the round
  std::set<std::string> ended_;                        // of the rounds that count
  membership::EndedWith ended_with_;                   // what they had accepted, as far as it is known
  std::map<std::string, Clock::time_point> asked_at_;  // when the end of an absent node was asked for last
  std::map<std::string, std::string> refusals_;
  bool has_quorum_ = false;
  bool waits_for_nodes_ = false;
  std::optional<membership::WitnessView> witness_;
  Vote vote_;
};

}  // namespace lockstep::launch
