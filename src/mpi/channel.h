// A communicator as the progress thread serves it: operations in order, their deadlines, their end.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "communicator/outer_operations.h"
#include "lockstep/communicator/work.h"
#include "mpi/channel_operation.h"

namespace lockstep::mpi {

// Collectives run one after the other, in the order of issue, each started when the one before is complete; sends and
// receives start at once. A failure ends all pending and later operations of the channel: MPI cannot cancel a
// collective, so what was started is abandoned, with its memory, and MPI is never called for the channel again.
class Channel {
 public:
  struct Settings {
    const lockstep_mpi_plugin* mpi = nullptr;
    std::string name;  // "group 'world' (4 ranks, Open MPI v4.1.4)": the start of every error
    // Ok while all ranks are alive. Called every few milliseconds while something is pending. May be empty.
    std::function<Status()> health = {};
    // Notifies the other ranks of an error here that ends the group. Called once. May be empty.
    std::function<void(const Status&)> notify_peers = {};
    // OuterOperations::look and completed of the watch group; or both empty.
    std::function<Status(const std::optional<OuterOperations::Pending>& oldest)> look = {};
    std::function<void(const OpDescriptor&)> completed = {};
    std::function<void()> wake = {};  // there is something for the progress thread to do
    // Takes what MPI may still write to. Never returns it.
    std::function<void(std::vector<ChannelOperation>)> abandon = {};
  };
  explicit Channel(Settings settings) : settings_(std::move(settings)) {}

  // From any thread. After a failure the Work is complete at once, with it.
  Work submit(ChannelOperation operation);
  // Ends the channel here; the first reason counts. With `notify_peers` the other ranks are notified.
  void fail(const Status& reason, bool notify_peers);
  Status failure() const;
  // Blocks until nothing is pending: at most until the last deadline.
  void drain();

  // On the progress thread only.
  bool advance();  // starts and tests; true if something was started or has ended
  bool busy() const { return !running_.empty() || !waiting_.empty(); }
  void check();  // health, deadlines, and what the other ranks wait in

 private:
  bool take_submitted();
  bool start_next();
  bool start(ChannelOperation operation);
  bool test_running();
  void end(ChannelOperation operation, const Status& outcome);
  void end_all(const Status& reason);
  Status mpi_error(const ChannelOperation& operation, int code) const;
  std::string describe(const ChannelOperation& operation) const;
  // The oldest collective that is not complete, with the earliest deadline of all.
  std::optional<OuterOperations::Pending> oldest_collective() const;
  void check_messages();
  void check_collectives();

  const Settings settings_;

  mutable std::mutex mutex_;
  std::condition_variable idle_;
  std::vector<ChannelOperation> submitted_;  // guarded by mutex_
  Status failure_;                           // guarded by mutex_
  std::uint64_t last_issued_ = 0;            // guarded by mutex_: number of the last collective
  std::size_t pending_ = 0;                  // guarded by mutex_

  // Of the progress thread.
  std::deque<ChannelOperation> waiting_;   // collectives that have not started
  std::vector<ChannelOperation> running_;  // at most one collective
  bool collective_runs_ = false;
  Deadline::Clock::time_point next_look_{};
};

}  // namespace lockstep::mpi
