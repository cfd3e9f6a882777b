#include "launch/options/core_binding.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::launch {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(CoreBinding, DividesTheCoresEquallyAndLeavesTheRemainder) {
  const std::vector<Core> five = {{0, 0, 0}, {1, 0, 1}, {2, 0, 2}, {3, 0, 3}, {4, 0, 4}};
  EXPECT_THAT(plan_binding(five, 2), ElementsAre(ElementsAre(0, 1), ElementsAre(2, 3)));
  EXPECT_THAT(plan_binding(five, 1), ElementsAre(ElementsAre(0, 1, 2, 3, 4)));
}

TEST(CoreBinding, KeepsHardwareThreadsOfACoreTogether) {
  // As most machines number them: 0 and 2 are one core, 1 and 3 the other.
  const std::vector<Core> cores = {{0, 0, 0}, {1, 0, 1}, {2, 0, 0}, {3, 0, 1}};
  EXPECT_THAT(plan_binding(cores, 2), ElementsAre(ElementsAre(0, 2), ElementsAre(1, 3)));
}

TEST(CoreBinding, KeepsAProcessorsCoresTogether) {
  const std::vector<Core> cores = {{0, 1, 0}, {1, 0, 0}, {2, 1, 1}, {3, 0, 1}};
  EXPECT_THAT(plan_binding(cores, 2), ElementsAre(ElementsAre(1, 3), ElementsAre(0, 2)));
}

TEST(CoreBinding, BindsNoRankIfThereAreMoreRanksThanCores) {
  EXPECT_THAT(plan_binding({{0, 0, 0}, {1, 0, 1}}, 3), IsEmpty());
}

TEST(CoreBinding, GivesEveryRankAtLeastOneThread) {
  EXPECT_EQ(cores_per_rank(8, 3), 2);
  EXPECT_EQ(cores_per_rank(2, 64), 1);
}

TEST(CoreBinding, FindsCoresOnThisMachine) { EXPECT_FALSE(usable_cores().empty()); }

}  // namespace
}  // namespace lockstep::launch
