#include "communicator/op_scope.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>

#include "base/log.h"
#include "base/seconds.h"

namespace lockstep {
namespace {

using std::chrono::milliseconds;

// Shorter waits are normal and not worth a message to other hosts.
constexpr milliseconds kLongWait{50};

milliseconds long_wait_of(const Topology& topology) {
  constexpr int kRanks = 64;
  return topology.single_host() ? kLongWait : kLongWait * std::clamp(topology.size() / kRanks, 1, 20);
}

// News crosses about log2(hosts) links, with a pause at each.
milliseconds spreading_time(const Topology& topology) {
  int links = 1;
  while ((std::size_t{1} << links) < topology.hosts.size()) ++links;
  return long_wait_of(topology) + ProgressSpread::kBetweenReports * (links - 1);
}

}  // namespace

Status OpScope::check(std::span<const int> waiting_for) {
  core_.adopt_failure_of_host();
  if (stopped()) return core_.failure().reason();
  const auto waited = timer_.elapsed();
  if (waited >= long_wait_of(core_.topology())) {
    LOCKSTEP_RETURN_IF_ERROR(core_.exchange_progress(op_, !told_peers_));
    if (!told_peers_) told_peers_ = Deadline::Clock::now();
  }
  LOCKSTEP_RETURN_IF_ERROR(core_.progress().expect_all(op_.sequence));
  if (deadline().expired()) return timeout_error(waiting_for);
  warn_when_due(waiting_for);
  return Status();
}

// Ranks that have not reached the operation are the cause; a rank that we wait for may itself wait for them.
std::string OpScope::name_missing(std::span<const int> waiting_for) const {
  auto missing = core_.progress().not_yet_at(op_.sequence);
  const bool not_reached = !missing.empty();
  if (!not_reached) missing.assign(waiting_for.begin(), waiting_for.end());
  std::vector<std::string> names;
  names.reserve(missing.size());
  for (const int rank : missing) names.push_back(core_.describe_rank(rank));
  return fmt::format("{} {}", fmt::join(names, ", "),
                     not_reached ? "did not reach this operation" : "reached this operation, but did not complete it");
}

Status OpScope::timeout_error(std::span<const int> waiting_for) {
  return Status(
      StatusCode::timed_out,
      fmt::format("{} on rank {} reached its deadline after {:.1f} s: {}; is it stuck, slower than the timeout, "
                  "or on a different code path?",
                  describe(op_), core_.topology().rank, seconds(timer_.elapsed()), name_missing(waiting_for)));
}

void OpScope::warn_when_due(std::span<const int> waiting_for) {
  const auto waited = timer_.elapsed();
  if (waited < next_warning_) return;
  // Other waiting ranks report that at about the same time as we do: an earlier warning would blame them too.
  if (!told_peers_ || Deadline::Clock::now() - *told_peers_ < spreading_time(core_.topology())) return;
  next_warning_ *= 2;
  log_warn("{} of {} has waited {:.1f} s: {}; it fails in {:.1f} s", describe(op_), core_.describe_group(),
           seconds(waited), name_missing(waiting_for), seconds(deadline().remaining()));
}

}  // namespace lockstep
