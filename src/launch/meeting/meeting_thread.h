// The thread of a StoreMeeting: maintains the connection to the coordinator, acts as the coordinator if that is this
// node's role, and searches for the coordinator when the connection is lost.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "launch/meeting/coordinator_role.h"
#include "launch/meeting/meeting_search.h"
#include "launch/meeting/node_view.h"
#include "launch/meeting/store_meeting.h"
#include "launch/options/endpoint.h"

namespace lockstep::launch {

// Shared by the thread and the caller. All members are guarded by the mutex.
struct MeetingShared {
  explicit MeetingShared(NodeView first) : view(std::move(first)) {}
  std::mutex mutex;
  std::condition_variable changed;  // of anything
  NodeView view;
  std::string address;   // of this node's store
  Status fatal;          // this node can never take part: refused, or another secret
  std::string problem;   // why there is no coordinator yet
  bool leaving = false;  // the caller is leaving
};

class MeetingThread {
 public:
  // The MeetingShared must outlive it.
  MeetingThread(const StoreMeetingOptions& options, OwnStore own, MeetingShared* shared);
  // Starts it; called once. resource_exhausted: there is no thread for it.
  [[nodiscard]] Status start();
  // Waits until this node's departure is announced, for at most StoreMeetingOptions::linger.
  ~MeetingThread();

 private:
  using Clock = std::chrono::steady_clock;

  void run();
  void tick();
  std::chrono::milliseconds rpc_timeout() const;
  Deadline rpc_deadline() const { return Deadline::after(rpc_timeout()); }

  // While there is a connection. A store error ends it.
  void exchange();
  Status announce();
  Status read_job_state();
  // Writes a round that includes this node into its roster, before it acts on it. already_exists: the roster has
  // another one with that number or a newer one.
  Status accept(const JobState& state);
  void remember(const JobState& state);
  Status read_refusal();
  Status exchange_rosters();
  void drop(const Status& why);

  // While this node is the coordinator.
  bool follow_move();
  // Marks this node's own store as that of a node that is not the coordinator, and says there where the coordinator is
  // ("host:port"; empty: unknown): a new launcher may know no other address.
  void mark_own_store(const std::string& coordinator);
  void become_coordinator();
  void step_down();

  // While there is no coordinator, or it has no quorum.
  void find_coordinator();
  bool is_candidate() const;
  bool search_nodes(const JobState& known);
  bool search_endpoints(const JobState& known);
  void become_first_coordinator();
  void join(Finding finding);
  bool is_too_soon(Clock::time_point& last, std::chrono::milliseconds pause) const;
  bool may_end();

  const StoreMeetingOptions options_;
  const std::string id_;
  MeetingShared* const shared_;
  OwnStore own_;
  bool own_is_marked_ = false;
  std::string marked_coordinator_;  // where the own store says that the coordinator is
  MeetingSearch search_;
  const Clock::time_point began_at_ = Clock::now();

  std::shared_ptr<TcpStore> store_;      // the coordinator's store; null: not connected
  std::string coordinator_id_;           // its node id
  std::string coordinator_address_;      // where its store is
  std::optional<CoordinatorRole> role_;  // if this node is the coordinator
  std::uint64_t connection_ = 0;
  std::uint64_t announced_ = 0;  // version of the view
  // Of the job state that was read last.
  int state_round_ = -1;
  std::string state_round_id_;
  std::string state_established_id_;
  bool state_official_ = false;
  std::uint64_t beat_ = 0;
  std::string stamp_;
  std::string state_version_;  // the version of the job state that was read
  std::string refused_round_;  // the id of the last one that could not be written into the roster
  Clock::time_point stamp_changed_at_;
  std::int64_t state_roster_ = -1;
  std::int64_t offered_roster_ = -1;
  Clock::time_point searched_at_;
  Clock::time_point redirected_at_;
  Clock::time_point move_checked_at_;
  std::optional<Clock::time_point> leaving_since_;

  std::thread thread_;  // the last member: it uses all others
};

}  // namespace lockstep::launch
