#include "record/straggler.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

namespace lockstep::record {
namespace {

constexpr std::size_t kFewestSteps = 10;
constexpr double kWorthNaming = 0.05;  // of a step
constexpr double kOftenEnough = 0.25;
// Beyond chance, in standard errors.
constexpr double kExcessErrors = 3;
constexpr double kFrequencyErrors = 4;

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// Without the largest tenth: pauses of the machine.
std::vector<double> trimmed(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  values.resize(values.size() - values.size() / 10);
  return values;
}

double mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

// How far the mean of such values is from the true one, as a rule.
double standard_error(const std::vector<double>& values) {
  const auto count = static_cast<double>(values.size());
  const double middle = mean(values);
  double squares = 0;
  for (const double value : values) squares += (value - middle) * (value - middle);
  return std::sqrt(squares / count / count);
}

double own_seconds(const RecordedStep& step) { return std::accumulate(step.own.begin(), step.own.end(), 0.0); }

// One step, as all ranks recorded it, in the order of the ranks.
using SharedStep = std::vector<const RecordedStep*>;

std::vector<SharedStep> shared_steps(std::span<const RankSteps> ranks) {
  std::map<std::uint64_t, SharedStep> by_number;
  for (const RankSteps& rank : ranks) {
    for (const RecordedStep& step : rank.steps) by_number[step.number].push_back(&step);
  }
  std::vector<SharedStep> shared;
  for (auto& [number, step] : by_number) {
    if (step.size() == ranks.size()) shared.push_back(std::move(step));
  }
  return shared;
}

struct Lateness {
  std::vector<double> excess;     // by step; 0: another rank was later
  std::vector<std::size_t> last;  // the steps in which this rank was the last
};

std::vector<Lateness> lateness_of(const std::vector<SharedStep>& steps, std::size_t ranks) {
  std::vector<Lateness> lateness(ranks, {std::vector<double>(steps.size(), 0.0), {}});
  for (std::size_t s = 0; s < steps.size(); ++s) {
    std::size_t last = 0;
    double longest = -1, second = -1;
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      const double own = own_seconds(*steps[s][rank]);
      if (own > longest) {
        second = longest;
        longest = own;
        last = rank;
      } else {
        second = std::max(second, own);
      }
    }
    lateness[last].excess[s] = longest - second;
    lateness[last].last.push_back(s);
  }
  return lateness;
}

// By how much `rank` exceeds the median of the others in one part of a step, over the steps in which it was the last.
template <typename Part>
double excess_in(const std::vector<SharedStep>& steps, const std::vector<std::size_t>& late, std::size_t rank,
                 const Part& part) {
  std::vector<double> excess;
  for (const std::size_t s : late) {
    std::vector<double> others;
    for (std::size_t other = 0; other < steps[s].size(); ++other) {
      if (other != rank) others.push_back(part(*steps[s][other]));
    }
    excess.push_back(part(*steps[s][rank]) - median(std::move(others)));
  }
  return median(std::move(excess));
}

void name_phase(const std::vector<SharedStep>& steps, const std::vector<std::size_t>& late, std::size_t rank,
                Straggler& straggler) {
  double most = -1;
  for (std::size_t kind = 0; kind < kPhaseKinds; ++kind) {
    const double excess = excess_in(steps, late, rank, [kind](const RecordedStep& step) { return step.own[kind]; });
    if (excess <= most) continue;
    most = excess;
    straggler.phase = static_cast<PhaseKind>(kind);
    straggler.excess_seconds = excess;
  }
  if (straggler.phase != PhaseKind::backward) return;
  const std::size_t buckets = std::min<std::size_t>(steps.front()[rank]->buckets, kBucketSegments);
  most = -1;
  for (std::size_t bucket = 0; bucket < buckets; ++bucket) {
    const double excess =
        excess_in(steps, late, rank, [bucket](const RecordedStep& step) { return step.bucket[bucket]; });
    if (excess <= most) continue;
    most = excess;
    straggler.bucket = static_cast<int>(bucket);
  }
}

}  // namespace

StragglerReport find_straggler(std::span<const RankSteps> ranks) {
  StragglerReport report;
  const std::vector<SharedStep> steps = shared_steps(ranks);
  if (ranks.size() < 2 || steps.size() < kFewestSteps) return report;
  report.steps = static_cast<int>(steps.size());
  std::vector<double> totals, communication;
  for (const SharedStep& step : steps) {
    totals.push_back(step.front()->total);
    double shortest = step.front()->exposed;
    for (const RecordedStep* rank : step) shortest = std::min<double>(shortest, rank->exposed);
    communication.push_back(shortest);
  }
  report.step_seconds = median(totals);
  report.communication_seconds = median(communication);

  const auto lateness = lateness_of(steps, ranks.size());
  std::vector<double> cost;
  for (const Lateness& rank : lateness) cost.push_back(mean(trimmed(rank.excess)));
  const auto worst = static_cast<std::size_t>(std::max_element(cost.begin(), cost.end()) - cost.begin());
  const double others =
      (std::accumulate(cost.begin(), cost.end(), 0.0) - cost[worst]) / static_cast<double>(ranks.size() - 1);
  const double net = cost[worst] - others;
  const double last_fraction = static_cast<double>(lateness[worst].last.size()) / static_cast<double>(steps.size());
  const double mean_step = mean(trimmed(totals));
  // Beyond chance: its excess is, or it is the last that often.
  const double share = 1 / static_cast<double>(ranks.size());
  const double spread = std::sqrt(share * (1 - share) / static_cast<double>(steps.size()));
  const bool beyond_chance = net >= kExcessErrors * standard_error(trimmed(lateness[worst].excess)) ||
                             last_fraction >= share + kFrequencyErrors * spread;
  if (net < kWorthNaming * mean_step || last_fraction < kOftenEnough || !beyond_chance) return report;

  Straggler straggler{.rank = ranks[worst].rank, .host = ranks[worst].host, .last_fraction = last_fraction};
  straggler.cost_seconds = std::min(net, 0.99 * mean_step);
  straggler.speedup = mean_step / (mean_step - straggler.cost_seconds);
  name_phase(steps, lateness[worst].last, worst, straggler);
  report.straggler = straggler;
  return report;
}

}  // namespace lockstep::record

namespace lockstep {
namespace {

std::string cause_of(const Straggler& straggler) {
  const double excess_ms = straggler.excess_seconds * 1e3;
  switch (straggler.phase) {
    case PhaseKind::backward: {
      if (straggler.bucket < 0) return fmt::format("its backward (+{:.3g} ms)", excess_ms);
      const std::string names = straggler.parameters.empty() ? "" : fmt::format(" ({})", straggler.parameters);
      return fmt::format("its backward before bucket {}{} was complete (+{:.3g} ms)", straggler.bucket, names,
                         excess_ms);
    }
    case PhaseKind::other:
      return fmt::format(
          "what it does between backward and the next forward, such as data loading and the optimizer "
          "(+{:.3g} ms)",
          excess_ms);
    default: return fmt::format("its {} (+{:.3g} ms)", to_string(straggler.phase), excess_ms);
  }
}

}  // namespace

std::string StragglerReport::to_string() const {
  if (steps == 0) return "there are too few steps yet to compare the ranks";
  const double step_ms = step_seconds * 1e3;
  if (!straggler) {
    return fmt::format(
        "no rank is consistently late; a step takes {:.3g} ms, of which {:.3g} ms are exposed communication", step_ms,
        communication_seconds * 1e3);
  }
  const Straggler& late = *straggler;
  return fmt::format(
      "rank {}{} arrives last in {:.0f} % of the steps, mainly because of {}; this costs {:.3g} ms of each {:.3g} ms "
      "step: "
      "without it, the job would be {:.2g} times as fast",
      late.rank, late.host.empty() ? "" : fmt::format(" (host {})", late.host), 100 * late.last_fraction,
      cause_of(late), late.cost_seconds * 1e3, step_ms, late.speedup);
}

}  // namespace lockstep
