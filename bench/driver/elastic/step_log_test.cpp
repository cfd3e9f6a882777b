#include "bench/driver/elastic/step_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::bench {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

constexpr std::int64_t kMs = 1'000'000;

StepLog log_of(const std::vector<std::string>& lines) {
  StepLog log;
  for (const std::string& line : lines) log.add_line(line);
  return log;
}

std::string step(int number, std::int64_t ms, pid_t pid, int generation, int rank, int ranks) {
  return "step " + std::to_string(number) + " " + std::to_string(ms * kMs) + " " + std::to_string(pid) + " " +
         std::to_string(generation) + " " + std::to_string(rank) + " " + std::to_string(ranks);
}
std::string enter(std::int64_t ms, pid_t pid, std::int64_t start_ms) {
  return "enter " + std::to_string(ms * kMs) + " " + std::to_string(pid) + " " + std::to_string(start_ms * kMs);
}

// Two ranks, of which the second is killed at 1250 ms, and replaced.
std::vector<std::string> before_the_kill() {
  return {enter(500, 10, 100),        enter(500, 11, 100),        step(1, 1000, 10, 1, 0, 2),
          step(1, 1000, 11, 1, 1, 2), step(2, 1100, 10, 1, 0, 2), step(2, 1100, 11, 1, 1, 2),
          step(3, 1200, 10, 1, 0, 2), step(3, 1201, 11, 1, 1, 2)};
}

TEST(StepLog, IgnoresIncompleteLines) {
  EXPECT_TRUE(log_of({"step 3 100", "", "ste", "enter", "pair 1 2"}).steps.empty());
}

TEST(StepLog, HasTheNewestRanks) {
  auto lines = before_the_kill();
  EXPECT_THAT(log_of(lines).newest_ranks(), ElementsAre(Pair(0, 10), Pair(1, 11)));
  EXPECT_EQ(log_of(lines).steps_of(11), 3);
  lines.push_back(step(4, 1500, 10, 2, 0, 1));
  EXPECT_THAT(log_of(lines).newest_ranks(), ElementsAre(Pair(0, 10)));
  EXPECT_EQ(log_of(lines).newest_generation(), 2);
}

TEST(Aftermath, IsUnknownBeforeTheNextStep) { EXPECT_FALSE(aftermath_of(log_of(before_the_kill()), 1250 * kMs)); }

// The dead rank had already done its part of the step.
TEST(Aftermath, AStepThatTheOldGenerationStillCommitsIsNoRecovery) {
  auto lines = before_the_kill();
  lines.push_back(step(4, 1251, 10, 1, 0, 2));
  EXPECT_FALSE(aftermath_of(log_of(lines), 1250 * kMs));
}

TEST(Aftermath, HasTheNextStepAndTheReplacement) {
  auto lines = before_the_kill();
  lines.push_back(step(4, 1500, 10, 2, 0, 1));
  ASSERT_TRUE(aftermath_of(log_of(lines), 1250 * kMs));
  EXPECT_FALSE(aftermath_of(log_of(lines), 1250 * kMs)->replacement);

  for (const auto& line : {enter(2000, 12, 1300), step(9, 2400, 10, 3, 0, 2), step(9, 2400, 12, 3, 1, 2)}) {
    lines.push_back(line);
  }
  const auto aftermath = aftermath_of(log_of(lines), 1250 * kMs);
  ASSERT_TRUE(aftermath && aftermath->replacement);
  EXPECT_DOUBLE_EQ(aftermath->step_seconds, 0.1);
  EXPECT_DOUBLE_EQ(aftermath->next_step, 0.25);
  EXPECT_DOUBLE_EQ(aftermath->replacement->started, 0.05);
  EXPECT_DOUBLE_EQ(aftermath->replacement->entered, 0.75);
  EXPECT_DOUBLE_EQ(aftermath->replacement->trained, 1.15);
}

// Restarted from a snapshot after step 1: steps 2 and 3 are done for the second time.
TEST(Aftermath, IncludesLostWork) {
  auto lines = before_the_kill();
  for (const auto& line : {enter(2000, 20, 1600), enter(2000, 21, 1600), step(2, 2100, 20, 2, 0, 2),
                           step(3, 2200, 20, 2, 0, 2), step(4, 2300, 20, 2, 0, 2)}) {
    lines.push_back(line);
  }
  const auto aftermath = aftermath_of(log_of(lines), 1250 * kMs);
  ASSERT_TRUE(aftermath && aftermath->replacement);
  EXPECT_DOUBLE_EQ(aftermath->next_step, 1.05);
  EXPECT_DOUBLE_EQ(aftermath->replacement->trained, 0.85);
}

TEST(CommitCostOf, IsThatOfTheLastRankToArrive) {
  const auto cost = commit_cost(log_of({"pair 0 104000000 100000000 4000000", "pair 0 101000000 100500000 300000",
                                        "pair 1 105000000 100500000 200000", "pair 1 106000000 99000000 7000000"}));
  ASSERT_TRUE(cost);
  EXPECT_DOUBLE_EQ(cost->commit_seconds, 0.00025);
  EXPECT_DOUBLE_EQ(cost->waiting_seconds, 0.0055);
  EXPECT_DOUBLE_EQ(cost->step_seconds, 0.1005);
  EXPECT_THAT(cost->with, ElementsAre(0.104, 0.106));
  EXPECT_NEAR(cost->share, 0.0024876, 1e-6);
  EXPECT_FALSE(commit_cost(log_of({})));
}

}  // namespace
}  // namespace lockstep::bench
