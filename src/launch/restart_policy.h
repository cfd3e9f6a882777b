// Whether ranks restart after a failure, and when. Pure: (what happened, now) -> decision with its reason.
#pragma once

#include <chrono>
#include <map>
#include <string>

namespace lockstep::launch {

struct RestartDecision {
  bool restart = false;
  std::chrono::milliseconds wait{0};  // before the start
  std::string reason;                 // human-readable: why or why not
};

// The history that decisions need: how often each rank died right after its start.
class RestartHistory {
 public:
  // A rank that ran for less than this died at once.
  static constexpr double kAtOnceSeconds = 5;
  // After this many such deaths of one rank in a row, restarting it is pointless.
  static constexpr int kMaxAtOnce = 3;

  // `rank` failed; returns how often in a row it has died at once, including this time (0: it ran longer).
  int record(int rank, double uptime_seconds);
  // The number of recorded deaths of this rank.
  int deaths(int rank) const;

 private:
  struct Record {
    int deaths = 0;
    int at_once = 0;
  };
  std::map<int, Record> ranks_;
};

// All ranks of the job: `restarts` so far of `max_restarts`; `at_once` from the history of the rank that failed.
RestartDecision decide_restart(int rank, int restarts, int max_restarts, int at_once);

// The same after the loss of a node of a job that needs all of its nodes; no rank caused it.
RestartDecision decide_restart_after_loss(int restarts, int max_restarts);

// One rank of an elastic job. `deaths`: of this local rank so far, including this one.
RestartDecision decide_replacement(const std::string& name, int restarts, int max_restarts, int deaths, int at_once);

// 0 for the first, then 0.5 s doubling to 10 s.
std::chrono::milliseconds back_off(int earlier);

}  // namespace lockstep::launch
