#include "record/metric_points.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

namespace lockstep::record {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr std::int64_t kSecond = 1'000'000'000;

// Writes points as "loss 3 = 0.5 of 2".
std::vector<std::string> described(const std::vector<MetricPoint>& points) {
  std::vector<std::string> texts;
  for (const auto& point : points) {
    std::string value = std::to_string(point.mean);
    value.erase(value.find('.') + 2);
    texts.push_back(point.name + " " + std::to_string(point.step) + " = " + value + " of " +
                    std::to_string(point.values));
  }
  return texts;
}

class Points : public ::testing::Test {
 protected:
  void log(int process, std::int64_t step, double value, const std::string& name = "loss",
           std::int64_t generation = 0) {
    points.add(process, generation, {.name = name, .step = step, .value = value, .wall_ns = ++time});
  }
  std::vector<std::string> take() { return described(points.take(now += kSecond / 5)); }

  MetricPoints points;
  std::int64_t time = 0;
  std::int64_t now = kSecond;
};

TEST_F(Points, AreTheMeanOfAllRanks) {
  log(0, 1, 1.0);
  log(1, 1, 2.0);
  EXPECT_THAT(take(), IsEmpty()) << "another rank, which was read before, may have logged it since";
  log(0, 2, 3.0);
  log(1, 2, 4.0);
  EXPECT_THAT(take(), IsEmpty());
  EXPECT_THAT(take(), ElementsAre("loss 1 = 1.5 of 2"));
  EXPECT_THAT(take(), ElementsAre("loss 2 = 3.5 of 2"));
}

TEST_F(Points, TheFirstOneWaitsForAllRanksUntilTheNextStep) {
  log(0, 1, 1.0);
  take();
  EXPECT_THAT(take(), IsEmpty());
  log(1, 1, 2.0);
  EXPECT_THAT(take(), IsEmpty());
  log(0, 2, 5.0);
  take();
  EXPECT_THAT(take(), ElementsAre("loss 1 = 1.5 of 2"));
}

TEST_F(Points, WaitForARankThatIsLate) {
  for (const int process : {0, 1}) log(process, 1, 1.0);
  for (const int process : {0, 1}) log(process, 2, 1.0);
  for (int i = 0; i < 3; ++i) take();
  log(0, 3, 1.0);
  for (int i = 0; i < 10; ++i) EXPECT_THAT(take(), IsEmpty());
  log(1, 3, 2.0);
  EXPECT_THAT(take(), ElementsAre("loss 3 = 1.5 of 2"));
}

TEST_F(Points, DoNotWaitForEverNorForARankThatHasEnded) {
  for (const int process : {0, 1}) log(process, 1, 1.0);
  for (const int process : {0, 1}) log(process, 2, 1.0);
  for (int i = 0; i < 3; ++i) take();
  log(0, 3, 1.0);
  take();
  now += MetricPoints::kPatienceNs;
  EXPECT_THAT(take(), ElementsAre("loss 3 = 1.0 of 1"));
  log(1, 3, 7.0);  // later still: a point of its own
  take();
  log(0, 4, 1.0);
  take();
  EXPECT_THAT(take(), ElementsAre("loss 3 = 7.0 of 1"));
  points.process_ended(1);
  EXPECT_THAT(take(), ElementsAre("loss 4 = 1.0 of 1"));
}

TEST_F(Points, OfRankZeroAloneAreWrittenAsTheyAre) {
  log(0, 1, 0.25);
  log(0, 2, 0.5);
  take();
  EXPECT_THAT(take(), ElementsAre("loss 1 = 0.2 of 1"));
  EXPECT_THAT(take(), ElementsAre("loss 2 = 0.5 of 1"));
  log(0, 3, 0.5);
  take();
  EXPECT_THAT(take(), ElementsAre("loss 3 = 0.5 of 1"));
}

TEST_F(Points, HaveTheSmallestAndTheLargestValue) {
  log(0, 1, 3.0);
  log(1, 1, -1.0);
  log(0, 1, 4.0);  // twice in a step, as with accumulated gradients
  const auto all = points.take_all();
  ASSERT_EQ(all.size(), 1U);
  EXPECT_EQ(all[0].mean, 2.0);
  EXPECT_EQ(all[0].min, -1.0);
  EXPECT_EQ(all[0].max, 4.0);
  EXPECT_EQ(all[0].values, 3);
}

TEST_F(Points, WithNaNShowThatARankHasDiverged) {
  log(0, 1, 3.0);
  log(1, 1, std::nan(""));
  log(0, 2, std::numeric_limits<double>::infinity());
  const auto all = points.take_all();
  ASSERT_EQ(all.size(), 2U);
  EXPECT_TRUE(std::isnan(all[0].mean));
  EXPECT_EQ(all[0].min, 3.0);
  EXPECT_EQ(all[0].max, 3.0);
  EXPECT_TRUE(std::isinf(all[1].mean));
}

TEST_F(Points, OfAStepThatIsRepeatedAreSeparate) {
  log(0, 7, 1.0, "loss", 1);
  log(1, 7, 1.0, "loss", 1);
  log(0, 7, 3.0, "loss", 2);  // rank 1 was lost before the commit
  const auto all = points.take_all();
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(all[0].generation, 1);
  EXPECT_EQ(all[0].values, 2);
  EXPECT_EQ(all[1].generation, 2);
  EXPECT_EQ(all[1].mean, 3.0);
}

}  // namespace
}  // namespace lockstep::record
