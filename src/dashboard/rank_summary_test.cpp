#include "dashboard/rank_summary.h"

#include <gtest/gtest.h>

namespace lockstep::dashboard {
namespace {

constexpr std::int64_t kSecond = 1'000'000'000;

// `count` steps of a model, each of `seconds`, the last of which ended at 100 s.
std::vector<record::RecordedStep> steps_of(int count, double seconds, std::uint32_t model = 1) {
  std::vector<record::RecordedStep> steps;
  for (int i = 0; i < count; ++i) {
    record::RecordedStep step{.number = static_cast<std::uint64_t>(i + 1), .model = model};
    step.end_ns = 100 * kSecond - static_cast<std::int64_t>((count - 1 - i) * seconds * 1e9);
    step.total = static_cast<float>(seconds);
    step.buckets = 2;
    step.own[0] = static_cast<float>(seconds / 2);
    step.bucket[1] = static_cast<float>(seconds / 4);
    steps.push_back(step);
  }
  return steps;
}

TEST(RankSummary, AveragesTheRecentStepsOfTheLastModel) {
  auto steps = steps_of(20, 9, 1);
  const auto other = steps_of(100, 0.5, 2);
  steps.insert(steps.end(), other.begin(), other.end());
  const auto recent = recent_steps(steps);
  ASSERT_EQ(recent.size(), kRecentSteps);
  EXPECT_EQ(recent.back().number, 100U);
  EXPECT_EQ(recent.front().number, 53U);
  const StepSplit split = split_of(recent);
  EXPECT_EQ(split.steps, 48);
  EXPECT_NEAR(split.total, 0.5, 1e-6);
  EXPECT_NEAR(split.own[0], 0.25, 1e-6);
  ASSERT_EQ(split.buckets.size(), 2U);
  EXPECT_NEAR(split.buckets[1], 0.125, 1e-6);
  EXPECT_EQ(split_of({}).steps, 0);
}

TEST(RankSummary, MeasuresTheSpeedWithinTheWindow) {
  EXPECT_NEAR(step_rate(steps_of(40, 0.05), 100 * kSecond, kSecond), 20, 1e-6);
  EXPECT_NEAR(step_rate(steps_of(3, 4), 101 * kSecond, kSecond), 0.25, 1e-6) << "slower than the window";
  EXPECT_NEAR(step_rate(steps_of(40, 0.05), 110 * kSecond, kSecond), 0.1, 1e-6)
      << "falls while the next step is overdue";
  EXPECT_EQ(step_rate(steps_of(1, 1), 100 * kSecond, kSecond), 0);
}

TEST(RankSummary, DescribesWhatTheRankDoes) {
  record::RankRecord record{.pid = 5, .rank = 3, .generation = 2, .phase = 0, .phase_since_ns = 99 * kSecond};
  record.groups.push_back({.id = 1, .name = "world"});
  record.groups.push_back({.id = 2, .name = "world"});
  record.groups[0].operations.push_back(
      {.sequence = 4, .started_ns = 90 * kSecond, .kind = 1, .outcome = record::Outcome::done});
  record.groups[1].operations.push_back({.sequence = 17, .started_ns = 97 * kSecond, .kind = 1});
  record.steps = steps_of(5, 1);
  RankState rank;
  describe_rank(rank, record, 101 * kSecond);
  EXPECT_EQ(rank.rank, 3);
  EXPECT_EQ(rank.condition, RankCondition::running);
  EXPECT_EQ(rank.phase, "data loading");
  EXPECT_DOUBLE_EQ(rank.phase_age, 2);
  EXPECT_EQ(rank.operation, "all_reduce #17 of 'world'");
  EXPECT_DOUBLE_EQ(rank.operation_age, 4);
  EXPECT_EQ(rank.step, 5U);
  EXPECT_DOUBLE_EQ(rank.step_age, 1);
  record.groups[1].operations[0].outcome = record::Outcome::done;
  record.phase = -1;
  describe_rank(rank, record, 101 * kSecond);
  EXPECT_EQ(rank.operation, "");
  EXPECT_EQ(rank.phase, "");
}

}  // namespace
}  // namespace lockstep::dashboard
