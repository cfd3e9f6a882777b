// The state of a job in one sentence.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "dashboard/job_state.h"

namespace lockstep::dashboard {
namespace {

using Level = Summary::Level;

constexpr double kStalledSeconds = 10;
constexpr double kStalledSteps = 10;   // times a step
constexpr double kRecentFailure = 15;  // seconds

std::size_t count(const JobState& state, RankCondition condition) {
  return static_cast<std::size_t>(std::count_if(state.ranks.begin(), state.ranks.end(),
                                                [&](const RankState& rank) { return rank.condition == condition; }));
}

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

const JobEvent* last_failure(const JobState& state) {
  for (auto event = state.events.rbegin(); event != state.events.rend(); ++event) {
    if (event->kind == EventKind::failure) return &*event;
  }
  return nullptr;
}

std::string progress(const JobState& state) {
  std::uint64_t step = 0;
  for (const RankState& rank : state.ranks) step = std::max(step, rank.step);
  if (step == 0) return "no step has been completed yet";
  if (state.steps_per_second <= 0) return fmt::format("step {}", step);
  return fmt::format("step {}, {:.3g} steps/s", step, state.steps_per_second);
}

// Since when no rank has completed a step or reached another operation, if that is long.
double stalled_seconds(const JobState& state) {
  double stalled = 0;
  for (const RankState& rank : state.ranks) {
    if (rank.condition != RankCondition::running || rank.operation.empty()) continue;
    const double limit = std::max(kStalledSeconds, kStalledSteps * rank.split.total);
    if (rank.operation_age >= limit) stalled = std::max(stalled, rank.operation_age);
  }
  return stalled;
}

std::string describe_straggler(const Straggler& late) {
  return fmt::format("rank {} holds it up ({}): without it, the job would be {:.2g} times as fast", late.rank,
                     to_string(late.phase), late.speedup);
}

}  // namespace

std::string_view to_string(EventKind kind) {
  switch (kind) {
    case EventKind::message: return "message";
    case EventKind::failure: return "failure";
    case EventKind::generation: return "generation";
    case EventKind::snapshot: return "snapshot";
    case EventKind::start: return "start";
    case EventKind::end: return "end";
  }
  return "unknown";
}

Summary summarise(const JobState& state) {
  if (state.conclusion) return {state.succeeded ? Level::over : Level::bad, *state.conclusion};
  const std::size_t running = count(state, RankCondition::running);
  const std::size_t starting = count(state, RankCondition::starting);
  if (state.ranks.empty()) {
    return {Level::attention, state.round == 0 ? "Waiting for the other nodes" : "No rank runs at the moment"};
  }
  const JobEvent* const failure = last_failure(state);
  if (failure != nullptr && state.now - failure->time < kRecentFailure) {
    return {Level::bad,
            fmt::format("{} of {} ranks run; {}", running + starting, state.facts.ranks, first_line(failure->text))};
  }
  if (running == 0 && starting > 0) return {Level::attention, fmt::format("{} ranks are starting", starting)};
  if (running + starting == 0) return {Level::attention, "All ranks have ended"};
  if (const double seconds = stalled_seconds(state); seconds > 0) {
    const std::string who = state.waiting.empty() ? "" : ": " + state.waiting.front();
    return {Level::bad, fmt::format("Stalled for {:.0f} s at {}{}", seconds, progress(state), who)};
  }
  if (starting > 0) return {Level::attention, fmt::format("{} of {} ranks have started", running, running + starting)};
  if (state.stragglers.straggler) {
    return {Level::attention,
            fmt::format("Training: {}; {}", progress(state), describe_straggler(*state.stragglers.straggler))};
  }
  const char* const verdict = state.stragglers.steps > 0 ? "; no rank is consistently late" : "";
  return {Level::good, fmt::format("Training: {}{}", progress(state), verdict)};
}

}  // namespace lockstep::dashboard
