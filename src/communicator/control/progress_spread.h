// What a host's first rank still has to tell other hosts about the progress of ranks. Changes are collected for a short
// time, so that a wave of changes becomes few messages. Used by the control thread.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <span>
#include <vector>

#include "communicator/control/control_message.h"
#include "communicator/peer_progress.h"
#include "lockstep/base/deadline.h"

namespace lockstep {

class ProgressSpread {
 public:
  using TimePoint = Deadline::Clock::time_point;
  static constexpr std::chrono::milliseconds kBetweenReports{50};

  // Both must outlive this. `hosts`: ranks of other hosts to which this one is linked.
  ProgressSpread(const Topology& topology, const PeerProgress& progress, std::vector<int> hosts);

  // Finds what has changed on this host. `all`: also ranks that have only completed more operations.
  void collect_local(bool all);
  // News that came from another host.
  void add(int rank, int from) { pending_[rank] = from; }
  // When flush() is due; the end of time if nothing is pending.
  TimePoint due() const;
  using Send = std::function<void(int host_rank, const ProgressReport& report)>;
  void flush(TimePoint now, const Send& send);

 private:
  const Topology& topology_;
  const PeerProgress& progress_;
  const std::vector<int> hosts_;
  std::vector<RankReport> sent_;  // by local rank: what other hosts were told
  std::map<int, int> pending_;    // rank -> the rank that told us; -1: a rank of this host
  TimePoint last_{};
};

}  // namespace lockstep
