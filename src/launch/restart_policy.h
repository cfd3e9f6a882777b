// Whether ranks start again after a failure, and when. Pure: (what happened, now) -> decision with its reason.
#pragma once

#include <chrono>
#include <map>
#include <string>

namespace lockstep::launch {

struct RestartDecision {
  bool restart = false;
  std::chrono::milliseconds wait{0};  // before the start
  std::string reason;                 // for people, why or why not
};

// What a policy has to remember: how often each rank died at once.
class RestartHistory {
 public:
  // A rank that lived for less counts as one that died at once.
  static constexpr double kAtOnceSeconds = 5;
  // After so many deaths at once in a row of one rank, starting it again is pointless.
  static constexpr int kMaxAtOnce = 3;

  // `rank` failed; returns how often in a row it has died at once, this time included (0: it had lived longer).
  int record(int rank, double lived_seconds);
  // So many deaths of this rank were recorded.
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

// The same after the loss of a node of a job that needs all of them; no rank is to blame for it.
RestartDecision decide_restart_after_loss(int restarts, int max_restarts);

// One rank of an elastic job. `deaths`: of this local rank so far, this one included.
RestartDecision decide_replacement(int rank, int restarts, int max_restarts, int deaths, int at_once);

// 0 for the first, then 0.5 s doubling to 10 s.
std::chrono::milliseconds back_off(int earlier);

}  // namespace lockstep::launch
