// The ends of ranks: which one was the first failure, and the report that people read. Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launch/meeting/node_meeting.h"

namespace lockstep::launch {

// How one life of a rank ended, and what is known about it.
struct RankEnd {
  RankFailure failure = {};  // for a rank that ended well, too: code 0
  double lived_seconds = 0;  // 0: not known
  bool stopped = false;      // after its launcher had told it to end
  bool consequence = false;  // it says itself that another rank had gone
  std::string stderr_tail = {};

  bool success() const { return failure.exit_code == 0 && failure.signal == 0; }
};

// True if the rank says that it failed because another one had gone. A rank that notices that throws or returns an
// error; it does not crash and is not killed.
bool is_consequence(const RankEnd& end);
// The end of a rank of another node, as its launcher reported it.
RankEnd remote_end(const RankFailure& failure);

// "exit code 3", "signal 11 (SIGSEGV)".
std::string describe_end(int exit_code, int signal);
// What the launcher ends with: the code, or 128 + signal.
int exit_code_of(const RankFailure& failure);

// The failure that started it all: of those that were not told to end, the earliest that does not say that another
// rank had gone; if all say so, the earliest. Null if no rank failed.
const RankEnd* first_failure(const std::vector<RankEnd>& ends);

// What ended an elastic job, in which single deaths are survived: nothing if the last rank to end ended well. Otherwise
// the last failures, those that followed each other within 5 s.
std::vector<RankEnd> final_failures(const std::vector<RankEnd>& ends);

// "rank 2 failed first: ..." and the lines below it: where, how, why, the last lines of its stderr, who fell with it,
// who was stopped, and where the logs are (empty: nowhere).
std::string failure_report(const RankEnd& first, const std::vector<RankEnd>& ends, const std::string& logs);

// About a rank whose loss the job survives, so far: how, why and the last lines of its stderr.
std::string loss_report(const RankEnd& end);

// One line about a rank's end: "rank 2 (pid 4711 on host a) ended with signal 9 (SIGKILL), 3.2 s after its start".
std::string describe_rank_end(const RankEnd& end);

// "0, 2-5".
std::string rank_list(std::vector<int> ranks);

}  // namespace lockstep::launch
