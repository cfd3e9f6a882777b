// Notices that an operation of this node's ranks waits for long, and writes what they do: first the ranks that are
// waited for. It writes again when the operation has waited twice as long, as the ranks warn again: where their threads
// are then shows whether they move.
//
// The stacks are taken by a thread of its own, so that the launcher keeps forwarding output. At most one dump is made
// in StallOptions::pause, and StallOptions::most_dumps in all; after these there are only messages.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "launch/report/job_dump.h"
#include "lockstep/base/deadline.h"
#include "record/record_memory.h"

namespace lockstep::launch {

struct StallOptions {
  // As the warning of the ranks themselves (InitOptions::warn_after). LOCKSTEP_STALL_SECONDS; 0: never.
  std::chrono::milliseconds after{10'000};
  std::string folder = {};  // for the files
  std::chrono::milliseconds pause{300'000};
  int most_dumps = 100;  // then only sentences
};

class StallWatch {
 public:
  // Ranks whose stacks are taken: more than a few are alike.
  static constexpr std::size_t kRanks = 4;

  explicit StallWatch(StallOptions options) : options_(std::move(options)) {}
  // Ends a dump that is being made.
  ~StallWatch();
  StallWatch(const StallWatch&) = delete;
  StallWatch& operator=(const StallWatch&) = delete;

  // Looks at the ranks once a second. `records`: of those that run. Returns a message for the log when a dump begins
  // (or would, but for their limit), and one when its file is complete; empty otherwise. Never blocks.
  std::string poll(const std::vector<const record::RecordMemory*>& records);

 private:
  void start(std::string headline, std::vector<RankActivity> ranks);

  const StallOptions options_;
  Deadline next_ = Deadline::after(Deadline::Duration::zero());
  Deadline next_dump_ = Deadline::after(Deadline::Duration::zero());
  // How long the operations that wait had waited when they were reported last, by group and sequence: the time at which
  // one began is measured anew each time.
  std::map<std::pair<std::uint64_t, std::uint64_t>, std::chrono::nanoseconds> reported_;
  int dumps_ = 0;
  std::thread writer_;
  std::atomic<bool> cancel_{false};

  std::mutex mutex_;
  std::string message_;  // guarded by mutex_: of a complete file, to be returned
};

// From the environment, and the folder of log files if there is one.
StallOptions stall_options(const std::string& log_folder);

}  // namespace lockstep::launch
