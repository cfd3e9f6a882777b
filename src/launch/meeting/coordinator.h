// The node that keeps the meeting: reads what the nodes say of themselves, notices who is lost, counts restarts,
// begins rounds, and sums it up in one JobState that all nodes follow. Touches no network and no clock: what is in
// the store, the time and the look at a port are arguments. Used by one thread.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "launch/meeting/meeting_records.h"
#include "launch/meeting/node_decisions.h"

namespace lockstep::launch {

struct CoordinatorOptions {
  std::chrono::milliseconds last_call{30'000};
  std::chrono::milliseconds silent_timeout{10'000};  // a node that is silent this long is lost
};

class Coordinator {
 public:
  using Clock = std::chrono::steady_clock;
  // True if the process that listened at this address is known to have ended.
  using HasEnded = std::function<bool(const std::string& address)>;

  // `known`: what this node knew of the job when the keeper before it was lost; a default one where the job is new.
  Coordinator(NodeRecord self, const JobConfig& job, JobState known, const CoordinatorOptions& options,
              Clock::time_point now);

  // `pairs`: all keys under kLaunchPrefix. Afterwards hall() and refusals() are new.
  void update(const std::map<std::string, std::string>& pairs, Clock::time_point now, const HasEnded& has_ended);

  const JobState& hall() const { return hall_; }
  // The newest roster that any node offers, and its node's id; -1: none.
  std::pair<std::string, std::int64_t> newest_roster() const;
  // The roster of that number is in the store for all.
  void set_roster_number(std::int64_t number) { hall_.roster_number = number; }
  // Why nodes are turned away, by id; they are never in a round.
  const std::map<std::string, std::string>& refusals() const { return refusals_; }
  // False: this part of the job may not go on; somebody else may keep the meeting by now.
  bool has_quorum() const { return has_quorum_; }
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
  void notice_losses(Clock::time_point now, const HasEnded& has_ended);
  void count_restarts();
  void decide(Clock::time_point now);
  void begin_round(const MeetingDecision& decision);
  void sum_up();
  bool lives(const std::string& id) const;
  bool takes_part(const std::string& id) const;
  // Waits for the round after this one. A node of this round that has not entered it does not: what it wrote before
  // was about this one.
  bool wants_next_round(const NodeState& state) const;

  const NodeRecord self_;
  const CoordinatorOptions options_;
  const Clock::time_point began_at_;
  Clock::time_point updated_at_;
  Clock::time_point last_arrival_;
  JobState hall_;
  std::map<std::string, Peer> peers_;  // by id
  std::vector<std::string> arrivals_;  // ids of peers, the first to come first
  std::set<std::string> lost_;         // of the round
  std::set<std::string> ended_;
  std::map<std::string, Clock::time_point> looked_at_;  // when a lost node's port was tried last
  std::map<std::string, std::string> refusals_;
  bool has_quorum_ = false;
};

}  // namespace lockstep::launch
