// A node's announcement and its view of the job, between the thread that uses the store and the caller of StoreMeeting.
// A state machine without network and clock; not thread-safe: StoreMeeting guards it.
#pragma once

#include <deque>
#include <optional>
#include <set>
#include <string>

#include "launch/meeting/meeting_records.h"
#include "launch/meeting/node_decisions.h"

namespace lockstep::launch {

class NodeView {
 public:
  NodeView(NodeRecord self, const JobConfig& job);

  // --- for the caller
  void ask_for_round();
  void give_up_round();
  // Enters the round that this node asked for, if it is established and includes this node; nothing otherwise.
  std::optional<Round> enter_round();
  void add_failure(const RankFailure& failure);
  void set_finished();
  void set_over(const std::string& reason);
  void set_left();
  // Returns the number of the request, for restarts_counted().
  std::uint64_t ask_restart();
  // The restarts of the job, once the request with that number was counted.
  std::optional<int> restarts_counted(std::uint64_t ask) const;
  std::optional<MeetingEvent> take_event();
  // True if it is newer than the known roster.
  bool offer_roster(const std::string& roster);

  // --- for the thread
  // Whether this node may accept the round: it is the known one, or newer and decided with knowledge of the newest
  // established round that this node knows.
  bool accepts(const RoundRecord& round) const;
  // Whether apply() would take over a round that includes this node, and that it does not know yet.
  bool needs_roster_entry(const JobState& state) const;
  // Takes over the coordinator's job state; ignores one that is older than the known one. Of one whose round this node
  // may not accept, it takes over only the established round: the coordinator learns why from the next announcement.
  // Write a round into the roster before, if needs_roster_entry().
  void apply(const JobState& state);
  // The new address of this node's store.
  void set_address(const std::string& address);
  // The announcement for a coordinator that knows the round `coordinator_round`, and the established one with that id.
  NodeState announcement(std::uint64_t connection, const std::string& coordinator_round,
                         const std::string& coordinator_established) const;
  // Changes with every change of the announcement.
  std::uint64_t version() const { return version_; }

  const NodeState& mine() const { return mine_; }
  const JobState& known() const { return known_; }
  // True while this node knows a round that may still become established.
  bool is_forming() const { return known_.round.number > known_.established.number; }
  const std::optional<std::string>& roster() const { return roster_; }
  std::int64_t newest_roster_number() const { return roster_number_; }

 private:
  void add_event(MeetingEvent::Kind kind, const NodeRecord& node);
  void find_failures();
  void find_losses(const RoundRecord& before);
  void find_others(const RoundRecord& before);
  bool takes_part() const;

  NodeState mine_;
  JobState known_;
  std::uint64_t version_ = 1;
  std::deque<MeetingEvent> events_;
  std::set<std::string> reported_;  // events of this round that were already reported
  std::optional<std::string> roster_;
  std::int64_t roster_number_ = -1;
};

}  // namespace lockstep::launch
