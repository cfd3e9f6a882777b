// The ends of ranks: which one was the first failure, and the human-readable report. Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/process_state.h"
#include "launch/meeting/node_meeting.h"

namespace lockstep::launch {

// How a rank ended, and what is known about it.
struct RankEnd {
  RankFailure failure = {};   // also for a rank that succeeded: code 0
  ProcessIdentity process{};  // of a rank of this node
  double uptime_seconds = 0;  // 0: unknown
  bool stopped = false;       // ended after its launcher had signalled it to end
  bool consequence = false;   // the rank itself reports that another rank was lost
  std::string stderr_tail = {};

  bool success() const { return failure.exit_code == 0 && failure.signal == 0; }
};

// True if the rank reports that it failed because another one was lost. A rank that detects a lost peer throws or
// returns an error; it does not crash and is not killed.
bool is_consequence(const RankEnd& end);
// The end of a rank of another node, as its launcher reported it.
RankEnd remote_end(const RankFailure& failure);

// What a process of a job is called in all messages: "rank 3", or "worker 1" in an elastic job.
std::string name_of(const RankFailure& process);
std::string name_of(bool elastic, int number);

// "exit code 3", "signal 11 (SIGSEGV)".
std::string describe_end(int exit_code, int signal);
// The exit code of the launcher: the rank's code, or 128 + signal.
int exit_code_of(const RankFailure& failure);

// The root cause: of the ranks that were not stopped, the earliest failure that does not blame a lost peer; if all do,
// the earliest. Null if no rank failed.
const RankEnd* first_failure(const std::vector<RankEnd>& ends);

// The failures that ended an elastic job, which survives single deaths: none if the last rank to end succeeded.
// Otherwise the last failures, those that followed each other within 5 s.
std::vector<RankEnd> final_failures(const std::vector<RankEnd>& ends);

// "rank 2 failed first: ..." and the lines below it: where, how, why, the last lines of its stderr, which ranks failed
// after it, which were stopped, and where the logs are (empty: none).
std::string failure_report(const RankEnd& first, const std::vector<RankEnd>& ends, const std::string& logs);

// The report on a lost rank of a job that continues: how, why and the last lines of its stderr.
std::string loss_report(const RankEnd& end);

// One line about a rank's end: "rank 2 (pid 4711 on host a) ended with signal 9 (SIGKILL), 3.2 s after its start".
std::string describe_rank_end(const RankEnd& end);

// "0, 2-5".
std::string rank_list(std::vector<int> ranks);

}  // namespace lockstep::launch
