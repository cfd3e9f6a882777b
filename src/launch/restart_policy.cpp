#include "launch/restart_policy.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/seconds.h"

namespace lockstep::launch {
namespace {

RestartDecision refuse(std::string reason) { return {.restart = false, .wait = {}, .reason = std::move(reason)}; }

std::string died_at_once(const std::string& name) {
  return fmt::format("{} died within {:.0f} s of its start {} times in a row; restarting it would not help", name,
                     RestartHistory::kAtOnceSeconds, RestartHistory::kMaxAtOnce);
}

std::string after(std::chrono::milliseconds wait) {
  return wait.count() == 0 ? "" : fmt::format(" in {:.1f} s", seconds(wait));
}

}  // namespace

int RestartHistory::record(int rank, double uptime_seconds) {
  Record& record = ranks_[rank];
  ++record.deaths;
  record.at_once = uptime_seconds < kAtOnceSeconds ? record.at_once + 1 : 0;
  return record.at_once;
}

int RestartHistory::deaths(int rank) const {
  const auto found = ranks_.find(rank);
  return found == ranks_.end() ? 0 : found->second.deaths;
}

std::chrono::milliseconds back_off(int earlier) {
  if (earlier <= 0) return std::chrono::milliseconds(0);
  const int doublings = std::min(earlier - 1, 5);
  return std::min(std::chrono::milliseconds(500 << doublings), std::chrono::milliseconds(10'000));
}

RestartDecision decide_restart(int rank, int restarts, int max_restarts, int at_once) {
  if (max_restarts == 0) return refuse("");
  if (at_once >= RestartHistory::kMaxAtOnce && restarts < max_restarts)
    return refuse(died_at_once(fmt::format("rank {}", rank)));
  return decide_restart_after_loss(restarts, max_restarts);
}

RestartDecision decide_restart_after_loss(int restarts, int max_restarts) {
  if (max_restarts == 0) return refuse("no restarts are allowed (see --max-restarts)");
  if (restarts >= max_restarts) return refuse(fmt::format("all {} restarts are used up", max_restarts));
  const auto wait = back_off(restarts);
  return {.restart = true,
          .wait = wait,
          .reason = fmt::format("all ranks restart{} (restart {} of {})", after(wait), restarts + 1, max_restarts)};
}

RestartDecision decide_replacement(const std::string& name, int restarts, int max_restarts, int deaths, int at_once) {
  if (at_once >= RestartHistory::kMaxAtOnce) return refuse(died_at_once(name) + "; the others continue");
  if (restarts >= max_restarts) {
    return refuse(max_restarts == 0 ? "no restarts are allowed (--max-restarts 0); the others continue"
                                    : fmt::format("all {} restarts are used up; the others continue", max_restarts));
  }
  const auto wait = back_off(deaths - 1);
  return {.restart = true,
          .wait = wait,
          .reason = fmt::format("a replacement starts{} (restart {} of {}); the others continue",
                                wait.count() == 0 ? " at once" : after(wait), restarts + 1, max_restarts)};
}

}  // namespace lockstep::launch
