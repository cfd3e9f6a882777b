#include "bench/driver/statistics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::bench {
namespace {

using ::testing::ElementsAre;

TEST(Percentile, IsTheNearestRank) {
  EXPECT_EQ(percentile({3, 1, 2}, 0.5), 2);
  EXPECT_EQ(percentile({4, 3, 2, 1}, 0.5), 2);
  EXPECT_EQ(percentile({7}, 0.99), 7);
  std::vector<double> hundred;
  for (int i = 100; i >= 1; --i) hundred.push_back(i);
  EXPECT_EQ(percentile(hundred, 0.99), 99);
  EXPECT_EQ(percentile(hundred, 1.0), 100);
}

TEST(Median, AveragesTheTwoInTheMiddle) {
  EXPECT_EQ(median({5, 1, 3}), 3);
  EXPECT_EQ(median({4, 1, 3, 2}), 2.5);
}

TEST(SummarizeRatios, ComparesRoundByRound) {
  // A machine that slows down by half in round 1 slows both: the ratio stays.
  const auto ratio = summarize_ratios({10, 20, 12}, {1, 2, 1});
  ASSERT_TRUE(ratio);
  EXPECT_EQ(ratio->median, 10);
  EXPECT_EQ(ratio->low, 10);
  EXPECT_EQ(ratio->high, 12);
}

TEST(SummarizeRatios, IsNothingWithoutRounds) {
  EXPECT_FALSE(summarize_ratios({}, {1, 2}));
  EXPECT_FALSE(summarize_ratios({1}, {0}));
}

TEST(SlowestRank, TakesTheLastRankOfEachOperation) {
  EXPECT_THAT(slowest_rank({{1, 5, 3}, {2, 4, 9}}), ElementsAre(2, 5, 9));
}

TEST(CountDifferences, CountsOperationsThatDifferAnywhere) {
  EXPECT_EQ(count_differences({{1, 2, 3}, {1, 2, 3}, {1, 2, 3}}), 0u);
  EXPECT_EQ(count_differences({{1, 2, 3}, {1, 2, 3}, {1, 7, 8}}), 2u);
  EXPECT_EQ(count_differences({{}, {}}), 0u);
}

TEST(Bandwidth, IsAsNcclTestsDefinesIt) {
  EXPECT_DOUBLE_EQ(algorithm_bandwidth(2'000'000'000, 0.5), 4.0);
  EXPECT_DOUBLE_EQ(bus_bandwidth_factor(Collective::all_reduce, 2), 1.0);
  EXPECT_DOUBLE_EQ(bus_bandwidth_factor(Collective::all_reduce, 4), 1.5);
  EXPECT_DOUBLE_EQ(bus_bandwidth_factor(Collective::all_gather, 4), 0.75);
  EXPECT_DOUBLE_EQ(bus_bandwidth_factor(Collective::reduce_scatter, 4), 0.75);
  EXPECT_DOUBLE_EQ(bus_bandwidth_factor(Collective::broadcast, 4), 1.0);
}

TEST(LinkLimit, IsLatencyAndWhatEachHostSends) {
  EXPECT_DOUBLE_EQ(link_limit(Collective::all_reduce, 2, 1000, 0.5, 100), 10.5);
  EXPECT_DOUBLE_EQ(link_limit(Collective::all_reduce, 4, 1000, 0, 100), 15);
  EXPECT_DOUBLE_EQ(link_limit(Collective::all_gather, 4, 1000, 0, 100), 7.5);
  EXPECT_DOUBLE_EQ(link_limit(Collective::barrier, 4, 0, 0.25, 100), 0.25);
  EXPECT_DOUBLE_EQ(wire_bytes_needed(Collective::all_reduce, 2, 1000), 1000);
}

}  // namespace
}  // namespace lockstep::bench
