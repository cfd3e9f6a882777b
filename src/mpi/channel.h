// A communicator as the progress thread serves it: operations in order, their deadlines, their end.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/communicator/work.h"
#include "mpi/channel_operation.h"

namespace lockstep::mpi {

// A rank's progress in the collectives of a group, for the ranks that wait for it.
struct ChannelProgress {
  std::uint64_t issued = 0;    // number of the last collective that the program issued
  std::uint64_t front = 0;     // number of the oldest that is not complete; 0: none
  std::string text;            // of the oldest
  std::uint64_t done = 0;      // number of the last that has succeeded; 0: none
  std::string done_text = {};  // of that one
  Deadline::Clock::time_point front_issued = {};
  std::optional<Deadline::Clock::time_point> expired = {};  // when the expired deadline of the oldest was detected

  friend bool operator==(const ChannelProgress&, const ChannelProgress&) = default;
};

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
    // A collective's deadline has passed. Must lead to a call of fail() that names the missing ranks. Empty: the
    // channel fails by itself.
    std::function<void()> find_missing_ranks = {};
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
  ChannelProgress progress() const;
  // Blocks until nothing is pending: at most until the last deadline.
  void drain();

  // On the progress thread only.
  bool advance();  // starts and tests; true if something was started or has ended
  bool busy() const { return !running_.empty() || !waiting_.empty(); }
  void check();  // health and deadlines

 private:
  bool take_submitted();
  bool start_next();
  bool start(ChannelOperation operation);
  bool test_running();
  void end(ChannelOperation operation, const Status& outcome);
  void end_all(const Status& reason);
  Status mpi_error(const ChannelOperation& operation, int code) const;
  std::string describe(const ChannelOperation& operation) const;
  void set_front();

  const Settings settings_;

  mutable std::mutex mutex_;
  std::condition_variable idle_;
  std::vector<ChannelOperation> submitted_;  // guarded by mutex_
  Status failure_;                           // guarded by mutex_
  ChannelProgress progress_;                 // guarded by mutex_
  std::size_t pending_ = 0;                  // guarded by mutex_

  // Of the progress thread.
  std::deque<ChannelOperation> waiting_;   // collectives that have not started
  std::vector<ChannelOperation> running_;  // at most one collective
  bool collective_runs_ = false;
  bool expired_ = false;  // a deadline has passed, and the channel waits for fail() with the missing ranks
};

}  // namespace lockstep::mpi
