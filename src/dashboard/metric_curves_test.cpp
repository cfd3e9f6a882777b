#include "dashboard/metric_curves.h"

#include <gtest/gtest.h>

namespace lockstep::dashboard {
namespace {

record::RecordedMetric value(const std::string& name, std::int64_t step, double value, std::uint32_t generation = 0,
                             int rank = -1) {
  record::RecordedMetric metric;
  metric.name = name;
  metric.step = step;
  metric.value = value;
  metric.generation = generation;
  metric.rank = rank;
  metric.time_ns = step * 1'000'000'000;
  return metric;
}

TEST(MetricCurves, ShowsTheMeanOverTheRanks) {
  MetricCurves metrics;
  std::vector<Curve> curves;
  metrics.add({value("loss", 1, 2), value("loss", 2, 4), value("loss", 3, 6)}, 1);
  metrics.add({value("loss", 1, 4), value("loss", 2, 8)}, 1);  // a rank that was read a moment before
  metrics.finish_sample(curves, 1);
  ASSERT_EQ(curves.size(), 1U);
  ASSERT_EQ(curves[0].points().size(), 1U) << "the other rank may still log step 2 and 3";
  EXPECT_EQ(curves[0].points()[0].y, 3);
  metrics.add({value("loss", 4, 0)}, 2);
  metrics.add({value("loss", 3, 2), value("loss", 4, 0)}, 2);
  metrics.finish_sample(curves, 2);
  ASSERT_EQ(curves[0].points().size(), 2U);
  EXPECT_EQ(curves[0].points()[1].y, 6);
  metrics.finish_sample(curves, 6);
  ASSERT_EQ(curves[0].points().size(), 4U) << "no more steps came";
  EXPECT_EQ(curves[0].points()[2].y, 4);
  EXPECT_EQ(curves[0].points()[3].x, 4);
}

TEST(MetricCurves, ReplacesStepsThatANewGenerationRepeats) {
  MetricCurves metrics;
  std::vector<Curve> curves;
  for (int step = 1; step <= 10; ++step) metrics.add({value("loss", step, 1, 1)}, 1);
  metrics.finish_sample(curves, 9);
  ASSERT_EQ(curves[0].points().size(), 10U);
  metrics.add({value("loss", 8, 5, 2), value("loss", 9, 5, 2)}, 10);
  metrics.add({value("loss", 11, 7, 1)}, 10);  // of a rank that belongs to the generation before
  metrics.finish_sample(curves, 19);
  ASSERT_EQ(curves[0].points().size(), 9U);
  EXPECT_EQ(curves[0].points()[6].y, 1);
  EXPECT_EQ(curves[0].points()[7].y, 5);
  EXPECT_TRUE(curves[0].rewritten_since(18));
}

TEST(MetricCurves, ReplacesStepsThatARestartRepeats) {
  MetricCurves metrics;
  std::vector<Curve> curves;
  for (int step = 1; step <= 10; ++step) metrics.add({value("loss", step, 1)}, 1);
  metrics.finish_sample(curves, 9);
  metrics.restart();
  metrics.add({value("loss", 1, 5), value("loss", 2, 5)}, 10);
  metrics.finish_sample(curves, 19);
  ASSERT_EQ(curves[0].points().size(), 2U);
  EXPECT_EQ(curves[0].points()[0].y, 5);
}

TEST(MetricCurves, FollowsStepsThatStartAgainInEachEpoch) {
  MetricCurves metrics;
  std::vector<Curve> curves;
  for (int step = 1; step <= 10; ++step) metrics.add({value("loss", step, 1)}, 1);
  metrics.finish_sample(curves, 9);
  metrics.add({value("loss", 10, 2)}, 10);
  metrics.finish_sample(curves, 19);
  EXPECT_EQ(curves[0].latest()->y, 1) << "of a rank that is late";
  metrics.add({value("loss", 1, 5), value("loss", 2, 6)}, 20);
  metrics.finish_sample(curves, 29);
  ASSERT_EQ(curves[0].points().size(), 2U);
  EXPECT_EQ(curves[0].latest()->y, 6);
}

TEST(MetricCurves, KeepsTheCurveOfAFastRankWhenASlowOneFollows) {
  MetricCurves metrics;
  std::vector<Curve> curves;
  for (int step = 1; step <= 10; ++step) metrics.add({value("loss", step, 1, 0, 0)}, 1);
  metrics.finish_sample(curves, 9);
  for (int step = 1; step <= 5; ++step) metrics.add({value("loss", step, 5, 0, 1)}, 20);
  metrics.finish_sample(curves, 29);
  ASSERT_EQ(curves[0].points().size(), 10U);
  EXPECT_EQ(curves[0].latest()->y, 1);
}

TEST(MetricCurves, StartsAgainOncePerEpochWithRanksOfDifferentSpeed) {
  MetricCurves metrics;
  std::vector<Curve> curves;
  for (int step = 1; step <= 10; ++step) {
    metrics.add({value("loss", step, 1, 0, 0)}, 1);
    metrics.add({value("loss", step, 1, 0, 1)}, 1);
  }
  metrics.finish_sample(curves, 9);
  metrics.add({value("loss", 1, 5, 0, 0)}, 4);  // too early to know that no rank is ahead
  for (int step = 2; step <= 6; ++step) metrics.add({value("loss", step, 5, 0, 0)}, 20);
  metrics.finish_sample(curves, 29);
  ASSERT_EQ(curves[0].points().size(), 6U);
  EXPECT_EQ(curves[0].latest()->y, 5);
  for (int step = 1; step <= 3; ++step) metrics.add({value("loss", step, 7, 0, 1)}, 30);
  metrics.finish_sample(curves, 39);
  ASSERT_EQ(curves[0].points().size(), 6U) << "the other rank is in the same epoch";
  EXPECT_EQ(curves[0].latest()->y, 5);
  metrics.add({value("loss", 1, 9, 0, 1)}, 40);
  metrics.finish_sample(curves, 49);
  ASSERT_EQ(curves[0].points().size(), 1U) << "the next epoch";
  EXPECT_EQ(curves[0].latest()->y, 9);
}

TEST(MetricCurves, LimitsTheirNumber) {
  MetricCurves metrics;
  std::vector<Curve> curves;
  for (int i = 0; i < 1000; ++i) metrics.add({value("metric " + std::to_string(i), 1, 1)}, 1);
  metrics.finish_sample(curves, 9);
  EXPECT_EQ(curves.size(), MetricCurves::kMostCurves);
}

TEST(MetricCurves, DerivesTheTimeLeftFromTheProgress) {
  MetricCurves metrics;
  std::vector<Curve> curves;
  EXPECT_FALSE(metrics.seconds_left());
  for (int step = 10; step <= 20; step += 5) metrics.add({value("progress", step, step / 100.0)}, 1);
  metrics.finish_sample(curves, 9);
  ASSERT_TRUE(metrics.seconds_left());
  EXPECT_NEAR(*metrics.seconds_left(), 80, 1e-6);
  metrics.add({value("progress", 25, 0.1)}, 10);
  metrics.finish_sample(curves, 19);
  EXPECT_FALSE(metrics.seconds_left()) << "it makes no progress";
}

}  // namespace
}  // namespace lockstep::dashboard
