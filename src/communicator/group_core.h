// The state that the lanes of a communicator share: the mesh, the failure state, the control plane, and
// the progress of the peers. Runs one collective at a time; the lane decides when. The first rank of a host passes on
// what its other ranks and other hosts should know.
//
// Threads: run_collective is called by one thread at a time (the lane ensures this). fail, the
// accessors and the registration of memory may be called from any thread. The control thread
// calls the ControlEvents.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "collectives/context.h"
#include "collectives/selector.h"
#include "communicator/control/control_plane.h"
#include "communicator/control/host_watch.h"
#include "communicator/control/progress_spread.h"
#include "communicator/failure_state.h"
#include "communicator/operation_timer.h"
#include "communicator/peer_progress.h"
#include "communicator/region_exchange.h"
#include "lockstep/rendezvous/init_options.h"
#include "record/operation_log.h"
#include "transport/mesh.h"

namespace lockstep {

class GroupCore final : public ControlEvents {
 public:
  GroupCore(Mesh mesh, const CommunicatorOptions& options, Selector selector);
  ~GroupCore() override;

  const Topology& topology() const { return topology_; }
  const CommunicatorOptions& options() const { return options_; }
  const std::string& group_id() const { return group_id_; }
  const Selector& selector() const { return selector_; }
  HostTransport& host() { return *host_; }
  const FailureState& failure() const { return failure_; }
  // "group 'world'"
  std::string describe_group() const;
  // "rank 2 (host node7, pid 4711)"
  std::string describe_rank(int rank) const;
  // Null if this is the only rank.
  LinkSource* links() { return links_.get(); }
  // Called (from any thread) when the group fails, after the state is set.
  void set_failure_listener(std::function<void()> listener);

  // Runs the collective on this thread. An error names the operation; the group has failed then.
  // `issued`: when, in ticks of the recorder; 0: now.
  Status run_collective(const CollectiveCall& call, OperationTimer timer, std::uint64_t issued = 0);

  // Fails the group with this reason, here and on all peers. Only the first reason counts.
  void fail(const Status& reason);
  // The error of `operation` ("all_reduce(...) #17") in a group that has failed, after `elapsed`.
  Status failure_of(const std::string& operation, Deadline::Duration elapsed) const;
  // This rank calls no more collectives: those that wait for one learn it.
  void announce_leave();
  // The same; then sends a goodbye and closes the connections.
  void leave();

  // How far the ranks have come.
  const PeerProgress& progress() const { return progress_; }
  // By the thread that runs collectives: this one is complete here.
  void set_completed(const OpDescriptor& op) { progress_.set_completed(op); }
  // The failure that another rank of this host has recorded, if there is one, becomes this rank's too.
  void adopt_failure_of_host();
  // Compares `op` with what the peers wait in. `tell_peers`: first tells them that this rank waits in `op`.
  Status exchange_progress(const OpDescriptor& op, bool tell_peers);
  void stop_waiting();

  // Makes memory visible to the ranks of this host; returns the number of its region.
  std::uint32_t publish_region(std::shared_ptr<const SharedMemory> memory) {
    return regions_.publish(std::move(memory));
  }
  void withdraw_region(std::uint32_t region) { regions_.withdraw(region); }

  void on_control_message(int rank, ControlMessage message, UniqueFd fd) override;
  void on_control_closed(int rank, const std::string& how) override;
  void on_control_silent(int rank, Deadline::Duration silence) override;
  Deadline::Clock::time_point on_control_turn(Deadline::Clock::time_point now) override;

 private:
  // What the control thread should tell other hosts at its next turn, on the first rank of a host.
  enum class ToTell : std::uint8_t { nothing, changes, everything };

  // After a failed operation: ensures that no peer that can still be reached accesses our memory any more.
  void withdraw_from_host();
  void tell_other_hosts(ToTell what);
  void spread_progress(Deadline::Clock::time_point now, ToTell what);
  // Sends a message to a rank of this host, over its first rank if there is no link.
  void send_on_host(int rank, const ControlMessage& message, Attachment attachment);
  template <typename Message>
  bool passed_on(const Message& message, UniqueFd& fd);

  // Constant after construction.
  const Topology topology_;
  const std::string group_id_;
  const CommunicatorOptions options_;
  const Selector selector_;
  const std::unique_ptr<HostTransport> host_;
  std::unique_ptr<StreamTransport> streams_;
  const std::shared_ptr<LinkSource> links_;

  record::OperationLog log_;  // used by the thread that runs collectives

  // Own synchronisation.
  FailureState failure_;
  PeerProgress progress_;
  RegionExchange regions_;
  std::atomic<bool> left_{false};
  std::atomic<ToTell> to_tell_{ToTell::nothing};

  // Owned by the control thread.
  HostWatch watch_;
  ProgressSpread spread_;
  Deadline::Clock::time_point next_report_{};

  std::mutex mutex_;
  std::function<void()> on_failure_;  // guarded by mutex_

  std::unique_ptr<ControlPlane> control_;  // last: its thread uses everything above
};

}  // namespace lockstep
