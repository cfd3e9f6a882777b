#include "dashboard/rank_summary.h"

#include <fmt/format.h>

#include <algorithm>

#include "lockstep/collectives/operation.h"

namespace lockstep::dashboard {
namespace {

double seconds_between(std::int64_t from, std::int64_t to) { return double(std::max(from, to) - from) * 1e-9; }

}  // namespace

std::vector<record::RecordedStep> recent_steps(const std::vector<record::RecordedStep>& steps) {
  std::vector<record::RecordedStep> recent;
  if (steps.empty()) return recent;
  for (auto step = steps.rbegin(); step != steps.rend() && recent.size() < kRecentSteps; ++step) {
    if (step->model == steps.back().model) recent.push_back(*step);
  }
  std::reverse(recent.begin(), recent.end());
  return recent;
}

StepSplit split_of(const std::vector<record::RecordedStep>& steps) {
  StepSplit split{.steps = static_cast<int>(steps.size())};
  if (steps.empty()) return split;
  const std::size_t buckets = std::min<std::size_t>(steps.back().buckets, record::kBucketSegments);
  split.buckets.resize(buckets);
  for (const auto& step : steps) {
    split.total += double(step.total);
    split.exposed += double(step.exposed);
    for (std::size_t kind = 0; kind < kPhaseKinds; ++kind) split.own[kind] += double(step.own[kind]);
    for (std::size_t bucket = 0; bucket < buckets; ++bucket) split.buckets[bucket] += double(step.bucket[bucket]);
  }
  const auto count = double(steps.size());
  split.total /= count;
  split.exposed /= count;
  for (double& own : split.own) own /= count;
  for (double& bucket : split.buckets) bucket /= count;
  return split;
}

void describe_rank(RankState& rank, const record::RankRecord& record, std::int64_t now_ns) {
  if (record.rank >= 0) rank.rank = record.rank;
  rank.generation = record.generation;
  rank.failure = record.failure;
  if (rank.condition == RankCondition::starting) rank.condition = RankCondition::running;
  rank.phase = record.phase < 0 ? "" : std::string(to_string(static_cast<PhaseKind>(record.phase)));
  rank.phase_age = record.phase < 0 ? 0 : seconds_between(record.phase_since_ns, now_ns);
  if (!record.steps.empty()) {
    rank.step = record.steps.back().number;
    rank.step_age = seconds_between(record.steps.back().end_ns, now_ns);
  }
  rank.split = split_of(recent_steps(record.steps));
  rank.operation.clear();
  rank.operation_age = 0;
  for (const auto& group : record.groups) {
    if (group.operations.empty() || group.operations.back().outcome != record::Outcome::running) continue;
    const auto& last = group.operations.back();
    const double age = seconds_between(last.started_ns, now_ns);
    if (!rank.operation.empty() && age <= rank.operation_age) continue;
    rank.operation =
        fmt::format("{} #{} of '{}'", to_string(static_cast<OperationKind>(last.kind)), last.sequence, group.name);
    rank.operation_age = age;
  }
}

double step_rate(const std::vector<record::RecordedStep>& steps, std::int64_t now_ns, std::int64_t window_ns) {
  if (steps.size() < 2) return 0;
  std::size_t first = steps.size() - 2;
  while (first > 0 && steps[first - 1].end_ns >= now_ns - window_ns) --first;
  const auto count = double(steps.size() - 1 - first);
  const double duration = seconds_between(steps[first].end_ns, steps.back().end_ns);
  if (duration <= 0) return 0;
  // If the next step takes longer than three, the rate falls while it does.
  const double age = seconds_between(steps.back().end_ns, now_ns);
  return age < 3 * duration / count ? count / duration : 1 / age;
}

}  // namespace lockstep::dashboard
