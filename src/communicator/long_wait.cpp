#include "communicator/long_wait.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>

#include "base/log.h"
#include "base/seconds.h"

namespace lockstep {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kLongWait{50};

// News crosses about log2(hosts) links, with a pause at each.
Deadline::Duration spreading_time(const Topology& topology) {
  int links = 1;
  while ((std::size_t{1} << links) < topology.hosts.size()) ++links;
  return LongWait::long_wait(topology) + ProgressSpread::kBetweenReports * (links - 1);
}

}  // namespace

Deadline::Duration LongWait::long_wait(const Topology& topology) {
  constexpr int kRanks = 64;
  return topology.single_host() ? kLongWait : kLongWait * std::clamp(topology.size() / kRanks, 1, 20);
}

bool LongWait::peers_have_answered() const {
  return told_peers_ && Deadline::Clock::now() - *told_peers_ >= spreading_time(core_.topology());
}

Status LongWait::check(Deadline::Duration waited, Deadline deadline, std::span<const int> waiting_for, bool has_time) {
  if (waited >= long_wait(core_.topology())) {
    LOCKSTEP_RETURN_IF_ERROR(core_.exchange_progress(op_, !told_peers_));
    if (!told_peers_) told_peers_ = Deadline::Clock::now();
  }
  LOCKSTEP_RETURN_IF_ERROR(core_.progress().expect_all(op_.sequence));
  if (deadline.expired() && !has_time) return timeout_error(waited, waiting_for);
  warn_when_due(waited, deadline, waiting_for);
  return Status();
}

// Ranks that have not reached the operation are the cause; a rank that we wait for may itself wait for them.
std::string LongWait::name_missing(std::span<const int> waiting_for) const {
  auto missing = core_.progress().not_yet_at(op_.sequence);
  const bool not_reached = !missing.empty();
  if (!not_reached) missing.assign(waiting_for.begin(), waiting_for.end());
  if (missing.empty()) return "all ranks have reached this operation, but it did not complete";
  std::vector<std::string> names;
  names.reserve(missing.size());
  for (const int rank : missing) names.push_back(core_.describe_rank(rank));
  return fmt::format("{} {}", fmt::join(names, ", "),
                     not_reached ? "did not reach this operation" : "reached this operation, but did not complete it");
}

Status LongWait::timeout_error(Deadline::Duration waited, std::span<const int> waiting_for) const {
  return Status(
      StatusCode::timed_out,
      fmt::format("{} on rank {} reached its deadline after {:.1f} s: {}; is it stuck, slower than the timeout, "
                  "or on a different code path?",
                  describe(op_), core_.topology().rank, seconds(waited), name_missing(waiting_for)));
}

void LongWait::warn_when_due(Deadline::Duration waited, Deadline deadline, std::span<const int> waiting_for) {
  if (waited < next_warning_) return;
  // Other waiting ranks report that at about the same time as we do: an earlier warning would blame them too.
  if (!peers_have_answered()) return;
  next_warning_ *= 2;
  log_warn("{} of {} has waited {:.1f} s: {}; it fails in {:.1f} s", describe(op_), core_.describe_group(),
           seconds(waited), name_missing(waiting_for), seconds(deadline.remaining()));
}

}  // namespace lockstep
