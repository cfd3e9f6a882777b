// Which ranks of this host are silent, found in the arena: each rank counts its beats there, and its host's first rank
// watches them all. The others watch the first one; once that has left the group, they watch each other. Costs one
// store per rank and interval. Used by the control thread.
//
// A rank that has not beaten yet is still forming the group, for which it has more time.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <vector>

#include "lockstep/base/deadline.h"
#include "transport/host_arena.h"
#include "transport/topology.h"

namespace lockstep {

class HostWatch {
 public:
  using TimePoint = Deadline::Clock::time_point;

  // `topology` must outlive this.
  HostWatch(const Topology& topology, HostArena arena, std::chrono::milliseconds peer_timeout,
            std::chrono::milliseconds interval, std::chrono::milliseconds forming_timeout);

  // Beats and looks, if that is due; calls `on_silent(rank, how long)` once for each rank that is silent for longer
  // than the peer timeout, or from the start for longer than both timeouts. Returns when it is due again.
  TimePoint turn(TimePoint now, const std::function<void(int, Deadline::Duration)>& on_silent);

 private:
  struct Watched {
    std::uint32_t beats = 0;
    TimePoint changed{};
    bool reported = false;
  };
  bool watches(int rank) const;

  const Topology& topology_;
  const HostArena arena_;
  const std::chrono::milliseconds peer_timeout_;
  const std::chrono::milliseconds interval_;
  const std::chrono::milliseconds until_first_beat_;
  std::vector<Watched> watched_;  // by local rank
  TimePoint last_{};
};

}  // namespace lockstep
