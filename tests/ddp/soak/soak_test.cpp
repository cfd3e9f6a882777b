// The soak in its shortest form: that it passes, and that it would not if something leaked.
#include <gmock/gmock.h>

#include "ddp/soak/growth.h"
#include "support/process_set.h"

namespace lockstep::soak {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using testing::ProcessSet;

constexpr std::size_t kHeap = 0, kDescriptors = 3;

std::vector<Usage> rounds_of(std::size_t column, const std::vector<std::int64_t>& values) {
  std::vector<Usage> rounds;
  for (const std::int64_t value : values) {
    rounds.emplace_back().fill(0);
    rounds.back()[column] = value;
  }
  return rounds;
}

std::vector<std::int64_t> line(std::size_t rounds, double begin, double per_round) {
  std::vector<std::int64_t> values;
  for (std::size_t i = 0; i < rounds; ++i) {
    values.push_back(static_cast<std::int64_t>(begin + per_round * static_cast<double>(i)));
  }
  return values;
}

TEST(SoakGrowth, AnOccasionallyLeakedDescriptorIsGrowth) {
  EXPECT_TRUE(growth_of(rounds_of(kDescriptors, line(100, 40, 0.05)), kDescriptors).grows);
  EXPECT_FALSE(growth_of(rounds_of(kDescriptors, line(100, 40, 0)), kDescriptors).grows);
}

TEST(SoakGrowth, GrowthDuringTheWarmUpDoesNotCount) {
  std::vector<std::int64_t> values = line(100, 60, 0);
  for (std::size_t i = 0; i < 25; ++i) values[i] = static_cast<std::int64_t>(20 + i);
  EXPECT_FALSE(growth_of(rounds_of(kDescriptors, values), kDescriptors).grows);
}

TEST(SoakGrowth, MemoryMayJumpOnceButNotRiseSteadily) {
  std::vector<std::int64_t> jump = line(1000, 50000, 0);
  for (std::size_t i = 700; i < jump.size(); ++i) jump[i] += 4000;
  EXPECT_FALSE(growth_of(rounds_of(kHeap, jump), kHeap).grows);
  const Growth steady = growth_of(rounds_of(kHeap, line(1000, 50000, 1.5)), kHeap);
  EXPECT_TRUE(steady.grows);
  EXPECT_NEAR(steady.per_round, 1.5, 0.01);
}

TEST(SoakGrowth, TheReportNamesTheRankAndTheNumber) {
  const std::vector<std::vector<Usage>> ranks = {rounds_of(kDescriptors, line(40, 7, 0)),
                                                 rounds_of(kDescriptors, line(40, 7, 1))};
  EXPECT_THAT(growth_report(ranks), HasSubstr("rank 1: descriptors grew from "));
  EXPECT_EQ(growth_report({ranks[0]}), "");
  EXPECT_THAT(growth_table(ranks), HasSubstr("GROWS"));
}

// One process that starts the ranks itself.
ProcessSet soak(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {LOCKSTEP_SOAK_PROGRAM, "--rounds", "8", "--ranks", "2"});
  const std::optional<std::string> removed;
  return testing::start_program(1, arguments,
                                {.environment = {{"RANK", removed},
                                                 {"WORLD_SIZE", removed},
                                                 {"MASTER_ADDR", removed},
                                                 {"MASTER_PORT", removed},
                                                 {"LOCKSTEP_STORE_FD", removed}}});
}

TEST(Soak, EightRoundsLeaveNothingBehind) {
  ProcessSet program = soak({});
  ASSERT_TRUE(program.wait_all(testing::in_seconds(290))) << program.report();
  EXPECT_TRUE(program.all_succeeded()) << program.report();
  EXPECT_THAT(program.output(0), HasSubstr("nothing grows"));
}

TEST(Soak, ALeakOfAnyKindIsReportedWithItsRank) {
  ProcessSet program = soak({"--leak"});
  ASSERT_TRUE(program.wait_all(testing::in_seconds(290))) << program.report();
  EXPECT_EQ(program.exit_status(0)->code, 1) << program.report();
  for (const Column& column : kColumns) {
    if (column.name == std::string("anonymous memory")) continue;  // a coarse limit, for long runs
    EXPECT_THAT(program.error_output(0), HasSubstr(std::string("rank 1: ") + column.name + " grew from"));
  }
  EXPECT_THAT(program.error_output(0), Not(HasSubstr("rank 0: descriptors")));
}

}  // namespace
}  // namespace lockstep::soak
