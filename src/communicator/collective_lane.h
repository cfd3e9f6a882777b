// Runs a group's collectives one after the other, in the order of issue.
//
// A blocking call that finds the lane free runs on the caller's thread: no hand-over, no wake-up.
// Every other call is queued for the lane's own thread, which starts with the first such call.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "communicator/group_core.h"
#include "communicator/work_state.h"
#include "lockstep/communicator/work.h"

namespace lockstep {

// A collective as it is issued: all but its sequence number, which the lane assigns.
struct IssuedCollective {
  CollectiveCall call;
  std::vector<std::size_t> counts = {};  // owns what call.counts refers to while the collective runs
  std::chrono::milliseconds timeout{0};
};

class CollectiveLane {
 public:
  explicit CollectiveLane(std::shared_ptr<GroupCore> core) : core_(std::move(core)) {}
  ~CollectiveLane() { close(); }

  // Blocks until the collective is complete or has failed.
  Status run(IssuedCollective&& issued);
  // Does not block. The deadline counts from the issue.
  Work submit(IssuedCollective&& issued);
  // Completes what is queued, then stops the thread; later calls fail.
  void close();

 private:
  struct Queued {
    IssuedCollective issued;
    OperationTimer timer;
    std::uint64_t issued_at;  // in ticks of the recorder
    std::shared_ptr<detail::WorkState> work;
  };

  // Takes the next sequence number and queues; with mutex_ held. If the thread cannot be started, the group fails, and
  // the result is complete.
  std::shared_ptr<detail::WorkState> enqueue(IssuedCollective&& issued);
  void serve();
  bool take_turn();
  bool idle() const;

  const std::shared_ptr<GroupCore> core_;

  // The sequence number of the last collective issued, times four, and two flags: kBusy, a thread has
  // the turn; kAttention, a collective is queued or the lane is closed, so that a blocking call must not run at once.
  // One atomic, so that a blocking call takes number and turn in one step.
  static constexpr std::uint64_t kBusy = 1;
  static constexpr std::uint64_t kAttention = 2;
  static constexpr std::uint64_t kOne = 4;
  std::atomic<std::uint64_t> state_{0};

  std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_; kAttention is set exactly while closed_ or queue_ is not empty or its last
  // entry runs.
  bool closed_ = false;
  std::deque<Queued> queue_;
  std::thread thread_;
};

}  // namespace lockstep
