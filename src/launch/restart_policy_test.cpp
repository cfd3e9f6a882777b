#include "launch/restart_policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::launch {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

TEST(RestartPolicy, RestartsUntilTheyAreUsedUp) {
  EXPECT_TRUE(decide_restart(0, 0, 2, 0).restart);
  EXPECT_TRUE(decide_restart(0, 1, 2, 0).restart);
  const RestartDecision last = decide_restart(0, 2, 2, 0);
  EXPECT_FALSE(last.restart);
  EXPECT_THAT(last.reason, HasSubstr("2 restarts are used up"));
}

TEST(RestartPolicy, GivesNoReasonIfRestartsWereNotRequested) {
  const RestartDecision decision = decide_restart(0, 0, 0, 1);
  EXPECT_FALSE(decision.restart);
  EXPECT_EQ(decision.reason, "");
}

TEST(RestartPolicy, GivesUpOnARankThatRepeatedlyDiesAtOnce) {
  RestartHistory history;
  int at_once = 0;
  for (int death = 1; death <= 3; ++death) {
    at_once = history.record(4, 0.5);
    EXPECT_EQ(at_once, death);
    EXPECT_EQ(decide_restart(4, death - 1, 100, at_once).restart, death < 3);
  }
  EXPECT_THAT(decide_restart(4, 2, 100, at_once).reason, HasSubstr("rank 4 died within 5 s of its start 3 times"));
  EXPECT_THAT(decide_replacement("worker 4", 2, 100, 3, at_once).reason, HasSubstr("the others continue"));
}

TEST(RestartPolicy, ResetsTheCountOfQuickDeathsAfterALongRun) {
  RestartHistory history;
  history.record(0, 1);
  history.record(0, 1);
  EXPECT_EQ(history.record(0, 60), 0);
  EXPECT_EQ(history.record(0, 1), 1);
  EXPECT_EQ(history.deaths(0), 4);
  EXPECT_EQ(history.deaths(1), 0);
  EXPECT_EQ(history.record(1, 1), 1) << "ranks are counted by themselves";
}

TEST(RestartPolicy, BacksOffFromNothingToTenSeconds) {
  EXPECT_EQ(back_off(0), milliseconds(0));
  EXPECT_EQ(back_off(1), milliseconds(500));
  EXPECT_EQ(back_off(2), milliseconds(1000));
  EXPECT_EQ(back_off(5), milliseconds(8000));
  EXPECT_EQ(back_off(6), milliseconds(10'000));
  EXPECT_EQ(back_off(1000), milliseconds(10'000));
}

TEST(Replacement, StartsAtOnceTheFirstTime) {
  const RestartDecision first = decide_replacement("worker 1", 3, 10, 1, 0);
  EXPECT_TRUE(first.restart);
  EXPECT_EQ(first.wait, milliseconds(0));
  EXPECT_EQ(decide_replacement("worker 1", 4, 10, 2, 0).wait, milliseconds(500));
}

TEST(Replacement, EndsWithTheRestartsOfTheJob) {
  const RestartDecision decision = decide_replacement("worker 1", 10, 10, 1, 0);
  EXPECT_FALSE(decision.restart);
  EXPECT_THAT(decision.reason, HasSubstr("10 restarts are used up; the others continue"));
}

}  // namespace
}  // namespace lockstep::launch
