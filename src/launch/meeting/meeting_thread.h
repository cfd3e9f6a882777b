// The thread of a StoreMeeting: keeps the connection to the meeting, keeps the meeting itself where it is this
// node's turn, and looks for it where it was lost.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "launch/meeting/coordinator.h"
#include "launch/meeting/meeting_search.h"
#include "launch/meeting/node_view.h"
#include "launch/meeting/store_meeting.h"
#include "launch/options/endpoint.h"

namespace lockstep::launch {

// Between the thread and the caller. All members are guarded by the mutex.
struct MeetingShared {
  explicit MeetingShared(NodeView first) : board(std::move(first)) {}
  std::mutex mutex;
  std::condition_variable changed;  // of anything
  NodeView board;
  std::string address;   // of this node's store
  Status fatal;          // this node can never take part: refused, another secret
  std::string problem;   // why there is no meeting yet
  bool leaving = false;  // the caller has gone
};

class MeetingThread {
 public:
  // The MeetingShared must outlive it.
  MeetingThread(const StoreMeetingOptions& options, OwnStore own, MeetingShared* shared);
  // Waits until the others know that this node has left, at most StoreMeetingOptions::linger.
  ~MeetingThread();

 private:
  using Clock = std::chrono::steady_clock;

  void run();
  void tick();
  Deadline rpc_deadline() const;

  // Where there is a connection. An error of a store ends it.
  void attend();
  Status beat_and_announce();
  Status read_hall();
  Status read_refusal();
  Status exchange_rosters();
  void drop(const Status& why);

  // Where this node keeps the meeting.
  Status keep();
  Status keep_roster();
  bool follow_move();
  void start_keeping();
  void abdicate();

  // Where there is none, or no quorum.
  void look_around();
  bool look_at_nodes(const JobState& known);
  bool look_at_endpoints(const JobState& known);
  void keep_first_meeting();
  void join(Finding finding);
  bool is_quiet(Clock::time_point& last, std::chrono::milliseconds pause) const;
  bool may_end();

  const StoreMeetingOptions options_;
  const std::string id_;
  MeetingShared* const shared_;
  OwnStore own_;
  MeetingSearch search_;
  const Clock::time_point began_at_ = Clock::now();

  std::shared_ptr<TcpStore> store_;    // where the meeting is; null: nowhere
  std::string keeper_id_;              // who keeps it
  std::optional<Coordinator> keeper_;  // where this node does
  std::uint64_t connection_ = 0;
  std::uint64_t announced_ = 0;  // version of the board
  int hall_round_ = -1;
  bool hall_official_ = false;
  std::uint64_t beat_ = 0;
  std::string stamp_;
  std::string hall_version_;  // the part of the stamp that was read
  Clock::time_point stamp_changed_at_;
  std::uint64_t written_version_ = 0;
  std::string written_hall_;
  std::map<std::string, std::string> written_refusals_;
  std::int64_t hall_roster_ = -1;
  std::int64_t offered_roster_ = -1;
  Clock::time_point looked_at_;
  Clock::time_point called_home_at_;
  Clock::time_point move_checked_at_;
  std::optional<Clock::time_point> leaving_since_;

  std::thread thread_;  // the last member: it uses all others
};

}  // namespace lockstep::launch
