#include "record/straggler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

namespace lockstep::record {
namespace {

using ::testing::HasSubstr;

constexpr int kRanks = 4;

RecordedStep usual_step(std::uint64_t number) {
  RecordedStep step{.number = number, .model = 1, .buckets = 3};
  const auto set = [&](PhaseKind kind, float seconds) { step.own[static_cast<std::size_t>(kind)] = seconds; };
  set(PhaseKind::data, 0.005F);
  set(PhaseKind::forward, 0.02F);
  set(PhaseKind::backward, 0.03F);
  set(PhaseKind::optimizer, 0.01F);
  set(PhaseKind::other, 0.001F);
  for (int bucket = 0; bucket < 3; ++bucket) step.bucket[static_cast<std::size_t>(bucket)] = 0.01F;
  step.exposed = 0.004F;
  step.total = 0.07F;
  return step;
}

std::vector<RankSteps> usual_job(int steps) {
  std::vector<RankSteps> ranks;
  for (int rank = 0; rank < kRanks; ++rank) {
    RankSteps recorded{.rank = rank, .host = rank < 2 ? "a" : "b"};
    for (int i = 1; i <= steps; ++i) recorded.steps.push_back(usual_step(static_cast<std::uint64_t>(i)));
    ranks.push_back(std::move(recorded));
  }
  return ranks;
}

// One rank needs longer; the others wait for it.
void delay(std::vector<RankSteps>& ranks, std::size_t slow, std::size_t step, PhaseKind kind, float seconds,
           int bucket = -1) {
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    RecordedStep& recorded = ranks[rank].steps[step];
    recorded.total += seconds;
    if (rank != slow) {
      recorded.exposed += seconds;
      continue;
    }
    recorded.own[static_cast<std::size_t>(kind)] += seconds;
    if (bucket >= 0) recorded.bucket[static_cast<std::size_t>(bucket)] += seconds;
  }
}

TEST(Straggler, TooFewStepsAreNotCompared) {
  const auto report = find_straggler(usual_job(9));
  EXPECT_EQ(report.steps, 0);
  EXPECT_THAT(report.to_string(), HasSubstr("too few steps"));
}

TEST(Straggler, EqualRanksAreNotNamed) {
  const auto report = find_straggler(usual_job(40));
  EXPECT_EQ(report.steps, 40);
  EXPECT_FALSE(report.straggler.has_value());
  EXPECT_NEAR(report.step_seconds, 0.07, 1e-6);
  EXPECT_NEAR(report.communication_seconds, 0.004, 1e-6);
  EXPECT_THAT(report.to_string(), HasSubstr("no rank is consistently late"));
}

TEST(Straggler, NamesRankHostPhaseAndCost) {
  auto ranks = usual_job(40);
  for (std::size_t step = 0; step < 40; ++step) delay(ranks, 3, step, PhaseKind::data, 0.05F);
  const auto report = find_straggler(ranks);
  ASSERT_TRUE(report.straggler.has_value());
  EXPECT_EQ(report.straggler->rank, 3);
  EXPECT_EQ(report.straggler->host, "b");
  EXPECT_EQ(report.straggler->phase, PhaseKind::data);
  EXPECT_NEAR(report.straggler->cost_seconds, 0.05, 0.001);
  EXPECT_NEAR(report.straggler->last_fraction, 1, 1e-9);
  EXPECT_NEAR(report.straggler->speedup, 0.12 / 0.07, 0.01);
  EXPECT_EQ(
      report.to_string(),
      "rank 3 (host b) arrives last in 100 % of the steps, mainly because of its data loading (+50 ms); this costs "
      "50 ms of each 120 ms step: without it, the job would be 1.7 times as fast");
}

TEST(Straggler, NamesTheBucketOfBackward) {
  auto ranks = usual_job(40);
  for (std::size_t step = 0; step < 40; ++step) delay(ranks, 1, step, PhaseKind::backward, 0.05F, 2);
  auto report = find_straggler(ranks);
  ASSERT_TRUE(report.straggler.has_value());
  EXPECT_EQ(report.straggler->rank, 1);
  EXPECT_EQ(report.straggler->phase, PhaseKind::backward);
  EXPECT_EQ(report.straggler->bucket, 2);
  report.straggler->parameters = "layer1.weight and 2 more";
  EXPECT_THAT(report.to_string(), HasSubstr("its backward before bucket 2 (layer1.weight and 2 more) was complete"));
}

TEST(Straggler, IsNamedIfItIsLateInSomeStepsOnly) {
  auto ranks = usual_job(40);
  for (std::size_t step = 0; step < 40; step += 3) delay(ranks, 2, step, PhaseKind::forward, 0.2F);
  const auto report = find_straggler(ranks);
  ASSERT_TRUE(report.straggler.has_value());
  EXPECT_EQ(report.straggler->rank, 2);
  EXPECT_EQ(report.straggler->phase, PhaseKind::forward);
}

TEST(Straggler, OneLongStepIsNone) {
  auto ranks = usual_job(40);
  delay(ranks, 0, 20, PhaseKind::snapshot, 5);
  EXPECT_FALSE(find_straggler(ranks).straggler.has_value());
}

TEST(Straggler, IsNamedAlthoughTheMachinePausesAtTimes) {
  auto ranks = usual_job(48);
  for (std::size_t step = 0; step < 48; ++step) delay(ranks, 1, step, PhaseKind::forward, 0.05F);
  for (std::size_t step = 5; step < 48; step += 12) delay(ranks, step % 4, step, PhaseKind::data, 2);
  const auto report = find_straggler(ranks);
  ASSERT_TRUE(report.straggler.has_value());
  EXPECT_EQ(report.straggler->rank, 1);
  EXPECT_EQ(report.straggler->phase, PhaseKind::forward);
}

TEST(Straggler, RanksThatAreLateByChanceAreNotNamed) {
  for (std::uint32_t seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    std::exponential_distribution<float> noise(1 / 0.01F);  // 10 ms in each of 70
    auto ranks = usual_job(48);
    for (auto& rank : ranks) {
      for (auto& step : rank.steps) step.own[static_cast<std::size_t>(PhaseKind::forward)] += noise(random);
    }
    const auto report = find_straggler(ranks);
    EXPECT_FALSE(report.straggler.has_value()) << "seed " << seed << ": " << report.to_string();
  }
}

TEST(Straggler, OnlyStepsThatAllRanksHaveAreCompared) {
  auto ranks = usual_job(40);
  ranks[2].steps.erase(ranks[2].steps.begin(), ranks[2].steps.begin() + 25);
  EXPECT_EQ(find_straggler(ranks).steps, 15);
}

}  // namespace
}  // namespace lockstep::record
