#include "ddp/sync/buckets/ready_tracker.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::detail {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Arrival = ReadyTracker::Arrival;
using State = ReadyTracker::State;

const BucketPlan kPlan = {{3, 2}, {1, 0}};

TEST(ReadyTracker, LaunchesABucketWhenItsLastGradientArrives) {
  ReadyTracker tracker(4, kPlan);
  EXPECT_EQ(tracker.state(), State::idle);
  EXPECT_EQ(tracker.arrived(3), Arrival::ready);
  EXPECT_EQ(tracker.state(), State::collecting);
  EXPECT_EQ(tracker.next_launch(), ReadyTracker::kNone);
  tracker.arrived(2);
  EXPECT_EQ(tracker.next_launch(), 0u);
  EXPECT_EQ(tracker.next_launch(), ReadyTracker::kNone);
}

TEST(ReadyTracker, KeepsTheOrderOfBucketsWhenALaterOneIsCompleteFirst) {
  ReadyTracker tracker(4, kPlan);
  tracker.arrived(0);
  tracker.arrived(1);
  EXPECT_EQ(tracker.next_launch(), ReadyTracker::kNone);
  tracker.arrived(2);
  tracker.arrived(3);
  EXPECT_EQ(tracker.next_launch(), 0u);
  EXPECT_EQ(tracker.next_launch(), 1u);
  EXPECT_EQ(tracker.state(), State::complete);
  EXPECT_THAT(tracker.ready_order(), ElementsAre(0, 1, 2, 3));
}

TEST(ReadyTracker, NamesWhatIsMissing) {
  ReadyTracker tracker(4, kPlan);
  tracker.arrived(3);
  tracker.arrived(1);
  EXPECT_THAT(tracker.missing(), ElementsAre(0, 2));
}

TEST(ReadyTracker, SkippedParametersCountAsReady) {
  ReadyTracker tracker(4, kPlan);
  for (std::size_t parameter : {0u, 1u, 2u}) tracker.skip(parameter);
  tracker.skip(2);
  tracker.arrived(3);
  EXPECT_EQ(tracker.next_launch(), 0u);
  EXPECT_EQ(tracker.next_launch(), 1u);
  EXPECT_THAT(tracker.missing(), IsEmpty());
}

TEST(ReadyTracker, ASecondArrivalInOnePassIsSurplusUnlessExpected) {
  ReadyTracker tracker(4, kPlan);
  tracker.expect(3, 2);
  EXPECT_EQ(tracker.arrived(3), Arrival::counted);
  EXPECT_EQ(tracker.arrived(3), Arrival::ready);
  EXPECT_EQ(tracker.arrived(3), Arrival::surplus);
}

TEST(ReadyTracker, AResetBeginsANewPassWithTheSameExpectations) {
  ReadyTracker tracker(4, kPlan);
  tracker.expect(0, 2);
  for (std::size_t parameter : {0u, 0u, 1u, 2u, 3u}) tracker.arrived(parameter);
  EXPECT_EQ(tracker.next_launch(), 0u);
  EXPECT_EQ(tracker.next_launch(), 1u);
  tracker.reset();
  EXPECT_EQ(tracker.state(), State::idle);
  EXPECT_THAT(tracker.missing(), ElementsAre(0, 1, 2, 3));
  EXPECT_EQ(tracker.arrived(0), Arrival::counted);
}

TEST(ReadyTracker, AParameterExpectedZeroTimesIsNeverWaitedFor) {
  ReadyTracker tracker(4, kPlan);
  tracker.expect(2, 0);
  tracker.arrived(3);
  EXPECT_EQ(tracker.next_launch(), 0u);
  EXPECT_THAT(tracker.missing(), ElementsAre(0, 1));
}

}  // namespace
}  // namespace lockstep::detail
