// Attempts to connect links for messages. Each runs on a thread, because the peer may be stopped; at most a few at a
// time, in turn, so that peers that do not answer do not keep others from being connected.
//
// Used with the mutex of its owner, except attempt(), which runs on the threads, and join_all().
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <thread>

#include "base/rank_vector.h"
#include "lockstep/base/deadline.h"
#include "transport/attempt_time.h"

namespace lockstep {

class LinkConnectors {
 public:
  // One attempt to connect a rank, which ends after this time. It calls ended() last of all that needs the mutex.
  using Attempt = std::function<void(int rank, std::chrono::milliseconds time)>;
  LinkConnectors(int ranks, Attempt attempt);

  // Begins attempts for ranks that are `wanted`, as far as there is room.
  struct NotStarted {
    int rank;
    std::string why;
  };
  // If the system has no thread left: nothing is begun until again().
  std::optional<NotStarted> start(const std::function<bool(int)>& wanted);
  void ended(int rank) { ended_.insert(rank); }
  Deadline::Clock::time_point again() const { return again_; }
  // When nothing is wanted any more.
  void join_all();

 private:
  void join_ended();

  const Attempt attempt_;
  RankVector<std::optional<AttemptTime>> times_;
  std::map<int, std::thread> threads_;  // by rank
  std::set<int> ended_;
  int next_ = 0;
  Deadline::Clock::time_point again_ = Deadline::Clock::time_point::min();
};

}  // namespace lockstep
