// The ranks of this node: starts them, forwards their output, and reports how each ended.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/process_state.h"
#include "launch/job.h"
#include "launch/output/rank_stream.h"
#include "launch/process/rank_process.h"
#include "launch/process/stop_signals.h"
#include "launch/report/failure.h"
#include "launch/report/stall_watch.h"
#include "record/record_memory.h"

namespace lockstep::launch {

// Used by one thread, the one that starts the ranks: they die with it. The destructor kills ranks that still run.
class RankSet {
 public:
  // The job must not move.
  explicit RankSet(Job& job) : job_(job), stall_watch_(stall_options(job.logs.root())) {}
  ~RankSet();
  RankSet(const RankSet&) = delete;
  RankSet& operator=(const RankSet&) = delete;

  struct StartOptions {
    int local_rank = 0;
    int attempt = 0;   // names the folder of its logs
    int restarts = 0;  // of the job
    std::optional<ElasticPlace> elastic = {};
  };
  // Starts a local rank that is not running. Errors have one-line messages; invalid_argument if the program can never
  // start.
  Status start(const Round& round, const StartOptions& options);

  // Forwards output until a rank ends, a stop signal arrives or the deadline passes. Returns the ends, whose output has
  // been forwarded.
  std::vector<RankEnd> wait(Deadline deadline, const StopSignals& signals);

  int running() const { return static_cast<int>(ranks_.size()); }
  // "rank 0, 2-3" or, in an elastic job, "worker 0".
  std::string running_names() const;
  // The running ones, by local rank.
  std::map<int, ProcessIdentity> processes() const;
  // Signals every running rank. Ranks that end from now on, until the next start(), count as stopped.
  void signal_all(int signal);

 private:
  struct Rank {
    RankFailure identity;  // the fields that are known at the start
    ProcessIdentity process_identity;
    bool elastic;
    int number;  // in messages and prefixes: the rank, or in an elastic job the local rank
    int count;   // such numbers are below this
    RankProcess process;
    RankStream out;
    RankStream err;
    std::string error_file;
    std::string torch_error_file;
    std::shared_ptr<record::RecordMemory> record;  // null: there was no memory for it
  };
  // `record`: null if the process has none.
  void record_started(const Round& round, int local_rank, bool elastic, pid_t pid,
                      const std::shared_ptr<record::RecordMemory>& record);
  // The record of this process is complete; `how` it ended, empty: well.
  void record_ended(const Rank& rank, const std::string& how);
  void print(const Rank& rank, Stream stream, std::string_view line);
  void pump(Rank& rank, Stream stream);
  void poll_once(int timeout_ms, const StopSignals& signals, std::vector<RankEnd>& ends);
  RankEnd finish(Rank& rank);
  void watch_for_stalls();

  Job& job_;
  std::map<int, Rank> ranks_;  // the running ones, by local rank
  StallWatch stall_watch_;
  std::optional<std::int64_t> stop_ns_;  // when signal_all was first called
};

}  // namespace lockstep::launch
