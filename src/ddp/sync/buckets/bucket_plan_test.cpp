#include "ddp/sync/buckets/bucket_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <random>
#include <set>

namespace lockstep::detail {
namespace {

using ::testing::ElementsAre;

constexpr BucketLimits kLimits{.first_bytes = 10, .bytes = 100, .alone_bytes = 1000};

std::vector<GradientShape> shapes(const std::vector<std::size_t>& bytes, int type = 0) {
  std::vector<GradientShape> result;
  for (std::size_t i = 0; i < bytes.size(); ++i) result.push_back({i, bytes[i], type});
  return result;
}

TEST(BucketPlan, NothingNeedsNoBucket) { EXPECT_TRUE(plan_buckets({}, kLimits).empty()); }

TEST(BucketPlan, TheFirstBucketIsSmallAndTheOthersFillUp) {
  EXPECT_THAT(plan_buckets(shapes({6, 6, 40, 40, 40, 40}), kLimits),
              ElementsAre(ElementsAre(0, 1), ElementsAre(2, 3, 4), ElementsAre(5)));
}

TEST(BucketPlan, AGradientOverTheLimitClosesItsBucket) {
  EXPECT_THAT(plan_buckets(shapes({12, 500, 1}), kLimits), ElementsAre(ElementsAre(0), ElementsAre(1), ElementsAre(2)));
}

TEST(BucketPlan, LargeGradientsStandAloneWithoutClosingTheBucketAroundThem) {
  EXPECT_THAT(plan_buckets(shapes({12, 20, 2000, 20, 2000}), kLimits),
              ElementsAre(ElementsAre(0), ElementsAre(2), ElementsAre(1, 3), ElementsAre(4)));
}

TEST(BucketPlan, TypesDoNotMixAndBucketsComeInTheOrderOfCompletion) {
  std::vector<GradientShape> gradients = shapes({50, 50, 50, 50});
  gradients[1].type = gradients[3].type = 7;
  EXPECT_THAT(plan_buckets(gradients, {.first_bytes = 100, .bytes = 100, .alone_bytes = 1000}),
              ElementsAre(ElementsAre(0, 2), ElementsAre(1, 3)));
}

TEST(BucketPlan, DevicesDoNotMix) {
  std::vector<GradientShape> gradients = shapes({50, 50, 50, 50, 50, 50});
  gradients[1].device = gradients[4].device = 0;
  gradients[2].device = gradients[3].device = 1;
  EXPECT_THAT(plan_buckets(gradients, {.first_bytes = 100, .bytes = 100, .alone_bytes = 1000}),
              ElementsAre(ElementsAre(2, 3), ElementsAre(1, 4), ElementsAre(0, 5)));
}

TEST(BucketPlan, OnADeviceOnlyGradientsOfItsOwnLimitStandAlone) {
  constexpr BucketLimits kDeviceLimits{.first_bytes = 10, .bytes = 100, .alone_bytes = 20, .device_alone_bytes = 60};
  std::vector<GradientShape> gradients = shapes({10, 30, 60, 30, 40});
  EXPECT_THAT(plan_buckets(gradients, kDeviceLimits),
              ElementsAre(ElementsAre(0), ElementsAre(1), ElementsAre(2), ElementsAre(3), ElementsAre(4)));
  for (GradientShape& gradient : gradients) gradient.device = 0;
  EXPECT_THAT(plan_buckets(gradients, kDeviceLimits),
              ElementsAre(ElementsAre(0), ElementsAre(2), ElementsAre(1, 3, 4)));
}

TEST(BucketPlan, EveryGradientIsInExactlyOneBucketWhateverTheSizes) {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    std::vector<GradientShape> gradients;
    const std::size_t count = random() % 40;
    for (std::size_t i = 0; i < count; ++i)
      gradients.push_back({i, random() % 1500, int(random() % 3), int(random() % 3) - 1});
    std::multiset<std::size_t> seen;
    for (const auto& bucket : plan_buckets(gradients, kLimits)) {
      EXPECT_FALSE(bucket.empty());
      for (std::size_t parameter : bucket) {
        seen.insert(parameter);
        EXPECT_EQ(gradients[parameter].type, gradients[bucket[0]].type);
        EXPECT_EQ(gradients[parameter].device, gradients[bucket[0]].device);
      }
    }
    EXPECT_EQ(seen.size(), count);
    EXPECT_EQ(std::set<std::size_t>(seen.begin(), seen.end()).size(), count);
  }
}

}  // namespace
}  // namespace lockstep::detail
