#include "transport/oversubscription.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <vector>

namespace lockstep {
namespace {

const std::vector<int> kTwo{0, 1};

TEST(LessOversubscribedProcessor, TheLastRankOfAProcessorMovesToTheEmptiestOne) {
  EXPECT_EQ(less_oversubscribed_processor(std::vector{0, 0, 0, 0}, 3, kTwo), 1);
  EXPECT_EQ(less_oversubscribed_processor(std::vector{1, 1, 0, 1}, 3, kTwo), 0);
  EXPECT_EQ(less_oversubscribed_processor(std::vector{0, 0, 0, 1, 1, 2}, 2, std::vector{0, 1, 2, 3}), 3);
}

TEST(LessOversubscribedProcessor, OnlyOneRankOfAProcessorMoves) {
  const std::vector<int> where{0, 0, 0, 0};
  for (int me = 0; me < 3; ++me) EXPECT_EQ(less_oversubscribed_processor(where, me, kTwo), -1) << me;
}

TEST(LessOversubscribedProcessor, NoRankMovesIfThatOnlyReversesTheDifference) {
  for (int me = 0; me < 3; ++me) EXPECT_EQ(less_oversubscribed_processor(std::vector{0, 0, 1}, me, kTwo), -1) << me;
  for (int me = 0; me < 4; ++me) EXPECT_EQ(less_oversubscribed_processor(std::vector{0, 1, 0, 1}, me, kTwo), -1) << me;
}

TEST(LessOversubscribedProcessor, NoRankMovesToAProcessorThatItMayNotUse) {
  EXPECT_EQ(less_oversubscribed_processor(std::vector{0, 0, 0, 0}, 3, std::vector{0}), -1);
  EXPECT_EQ(less_oversubscribed_processor(std::vector{0, 0, 0, 0}, 3, std::vector<int>{}), -1);
}

// Moves from each processor that this thread may use to each other one; the affinity does not change.
TEST(MoveToProcessor, KeepsTheAffinity) {
  cpu_set_t before;
  ASSERT_EQ(::sched_getaffinity(0, sizeof(before), &before), 0);
  for (int processor = 0; processor < CPU_SETSIZE; ++processor) {
    move_to_processor(processor);
    cpu_set_t after;
    ASSERT_EQ(::sched_getaffinity(0, sizeof(after), &after), 0);
    ASSERT_TRUE(CPU_EQUAL(&before, &after)) << processor;
  }
}

}  // namespace
}  // namespace lockstep
