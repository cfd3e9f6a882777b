// The operations of a c10d engine that are in flight: waits for each, completes our Work, and ends them all
// when a deadline passes, a peer is lost, ranks call different operations, or a rank aborts.
//
// Threads: one completes collectives, in order of issue; messages (send, recv) are waited for by threads of
// their own, as many as are pending at once, because c10d can only be waited for; one watches deadlines and the
// watch group. An operation's tensors are kept until c10d's Work is complete, even if ours has failed.
//
// Engines that order streams (NCCL): our Work is complete as soon as the operation is queued, and a thread that waits
// for it orders its own stream. The lane's threads poll at intervals whether the device has finished, to enforce
// deadlines.
#pragma once

#include "ddp/backends/c10d/c10d_headers.h"

#if LOCKSTEP_HAS_C10D

#include <condition_variable>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/seconds.h"
#include "base/unique_fd.h"
#include "communicator/outer_operations.h"
#include "communicator/work_state.h"
#include "ddp/backends/c10d/c10d_engine.h"
#include "ddp/backends/watch_group.h"
#include "lockstep/base/deadline.h"

namespace lockstep::detail {

struct C10dOperation {
  std::string name = {};  // "all_reduce(count 100, f32, sum) #17"; of a collective: set by the lane
  std::optional<OpDescriptor> collective = {};  // none: a message, which is not ordered with respect to collectives
  std::vector<at::Tensor> tensors = {};         // what c10d reads and writes
  std::function<void()> finish = {};            // after success, before our Work is complete
  std::chrono::milliseconds timeout{0};         // counts from the issue
  C10dWork work = {};                           // c10d's
  std::shared_ptr<WorkState> state = {};        // ours
  Deadline::Clock::time_point issued = {};
  bool settled = false;  // guarded by the lane's mutex: our Work is complete

  double elapsed_seconds() const { return seconds(Deadline::Clock::now() - issued); }
  Deadline deadline() const {
    // Rounded down, so that the sum does not overflow.
    const auto longest =
        std::chrono::duration_cast<std::chrono::milliseconds>(Deadline::Clock::time_point::max() - issued);
    return Deadline::at(issued + std::min(timeout, longest));
  }
};

class C10dLane {
 public:
  // `backend` and `engine` must outlive the lane.
  C10dLane(WatchGroup watch, const C10dEngine& engine, C10dBackend& backend);
  // Waits for everything that was issued.
  ~C10dLane();
  C10dLane(const C10dLane&) = delete;
  C10dLane& operator=(const C10dLane&) = delete;

  // Calls `start`, which issues the operation to c10d, and completes it later. Operations start in the order of the
  // calls. Throws Error if the group is dead.
  Work issue(C10dOperation operation, const std::function<C10dWork()>& start);

  // Ends the group on every rank. Only the first reason counts.
  void fail(const Status& reason);
  // Ok until the group fails.
  Status health() const;

 private:
  using Clock = Deadline::Clock;
  using Pending = std::shared_ptr<C10dOperation>;
  void complete_collectives();
  void complete_messages();
  void add_messenger();
  void run(const Pending& operation);
  // Of engines that order streams.
  void complete_at_once(C10dOperation& operation) const;
  void await_device(const C10dOperation& operation);
  void settle(const Pending& operation, const Status& outcome);
  Status failure_of(const C10dOperation& operation, const std::string& c10d_error);
  // `reason` as the error of one operation.
  Status error_of(const C10dOperation& operation, const Status& reason) const;

  void watch();
  // Until when the watcher may sleep; stored in next_look_ for issue().
  Deadline next_look();
  void end_pending();
  void settle_pending();
  // What the peers' progress and the deadline say about the oldest collective; and the deadlines of messages.
  void look_at_collectives();
  void look_at_messages();
  bool is_pending(std::uint64_t collective) const;
  // Why the watch group failed; Ok if it has not.
  Status watch_failure() const;
  void wake_watcher() const;

  // Constant after construction.
  const WatchGroup watch_;
  const std::unique_ptr<OuterOperations> outer_;
  const C10dEngine& engine_;
  C10dBackend& backend_;
  UniqueFd wake_fd_;

  std::mutex issue_mutex_;  // so that our order is c10d's

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  Status failure_;                       // guarded by mutex_
  std::list<Pending> pending_;           // guarded by mutex_: all whose c10d Work is not complete, oldest first
  std::deque<Pending> collectives_;      // guarded by mutex_
  std::deque<Pending> messages_;         // guarded by mutex_
  std::vector<std::thread> messengers_;  // guarded by mutex_
  int idle_messengers_ = 0;              // guarded by mutex_
  bool closing_ = false;                 // guarded by mutex_
  std::uint64_t last_issued_ = 0;        // guarded by mutex_: number of the latest collective
  Clock::time_point next_look_ = Clock::time_point::max();  // guarded by mutex_: the watcher's

  std::thread completer_;
  std::thread watcher_;
};

}  // namespace lockstep::detail

#endif
