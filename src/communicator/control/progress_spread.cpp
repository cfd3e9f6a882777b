#include "communicator/control/progress_spread.h"

#include <utility>

namespace lockstep {

ProgressSpread::ProgressSpread(const Topology& topology, const PeerProgress& progress, std::vector<int> hosts)
    : topology_(topology),
      progress_(progress),
      hosts_(std::move(hosts)),
      sent_(static_cast<std::size_t>(topology.local_size())) {}

void ProgressSpread::collect_local(bool all) {
  if (hosts_.empty()) return;
  for (std::size_t local = 0; local < sent_.size(); ++local) {
    const int rank = topology_.local_ranks()[local];
    const RankReport now = progress_.report(rank);
    RankReport& before = sent_[local];
    const bool changed = now.version != before.version || now.left != before.left;
    if (!changed && !(all && now.completed != before.completed)) continue;
    before = now;
    pending_[rank] = -1;
  }
}

ProgressSpread::TimePoint ProgressSpread::due() const {
  return pending_.empty() ? TimePoint::max() : last_ + kBetweenReports;
}

void ProgressSpread::flush(TimePoint now, const Send& send) {
  last_ = now;
  const auto pending = std::exchange(pending_, {});
  for (const int host : hosts_) {
    ProgressReport report;
    for (const auto& [rank, from] : pending) {
      if (from == host) continue;
      report.ranks.push_back(progress_.report(rank));
      if (report.ranks.size() < kMaxReports) continue;
      send(host, report);
      report.ranks.clear();
    }
    if (!report.ranks.empty()) send(host, report);
  }
}

}  // namespace lockstep
