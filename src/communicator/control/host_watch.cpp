#include "communicator/control/host_watch.h"

#include <algorithm>
#include <utility>

namespace lockstep {

HostWatch::HostWatch(const Topology& topology, HostArena arena, std::chrono::milliseconds peer_timeout,
                     std::chrono::milliseconds interval, std::chrono::milliseconds forming_timeout)
    : topology_(topology),
      arena_(std::move(arena)),
      peer_timeout_(peer_timeout),
      interval_(interval),
      until_first_beat_(std::max(peer_timeout, forming_timeout)),
      watched_(static_cast<std::size_t>(topology.local_size())) {}

bool HostWatch::watches(int rank) const {
  if (rank == topology_.rank || arena_.state(rank).left.load() != 0) return false;
  const int leader = topology_.host_leader();
  return topology_.leads_host() || rank == leader || arena_.state(leader).left.load() != 0;
}

HostWatch::TimePoint HostWatch::turn(TimePoint now, const std::function<void(int, Deadline::Duration)>& on_silent) {
  if (last_ != TimePoint{} && now < last_ + interval_) return last_ + interval_;
  // A long gap means that this process itself was stopped: it has not looked, so the silence counts from now on.
  const bool was_stopped = last_ == TimePoint{} || now - last_ > interval_ + peer_timeout_ / 2;
  last_ = now;
  // Relaxed: only whether the counters change matters.
  arena_.state(topology_.rank).beats.fetch_add(1, std::memory_order_relaxed);
  for (int local = 0; local < topology_.local_size(); ++local) {
    const int rank = topology_.local_ranks()[static_cast<std::size_t>(local)];
    auto& watched = watched_[static_cast<std::size_t>(local)];
    const std::uint32_t beats = arena_.state(rank).beats.load(std::memory_order_relaxed);
    const bool looked_before = watched.changed != TimePoint{};
    if (was_stopped || !looked_before || beats != watched.beats || !watches(rank)) {
      watched = {beats, watches(rank) ? now : TimePoint{}, false};
    } else if (!watched.reported && now - watched.changed > (beats == 0 ? until_first_beat_ : peer_timeout_)) {
      watched.reported = true;
      on_silent(rank, now - watched.changed);
    }
  }
  return now + interval_;
}

}  // namespace lockstep
