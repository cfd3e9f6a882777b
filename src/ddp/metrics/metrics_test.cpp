#include "lockstep/ddp/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>

#include "ddp/testing/error_of.h"
#include "ddp/testing/test_ranks.h"

namespace lockstep {
namespace {

using testing::error_of;
using testing::Group;
using ::testing::HasSubstr;
using testing::run_ranks;

// Rank r has r samples, so rank 0 has none.
TEST(Metrics, AreThoseOfAllSamplesForUnevenShards) {
  run_ranks(3, [](const Group& group) {
    Mean mean, of_batches;
    Accuracy accuracy, top_two(2);
    for (int sample = 0; sample < group->rank(); ++sample) {
      const at::Tensor scores = torch::tensor({{0.1, 0.5, 0.4}});
      mean.add(torch::full({1}, 10.0 * group->rank() + sample));
      accuracy.add(scores, torch::full({1}, sample + group->rank(), at::kLong));  // 1; 2, 3
      top_two.add(scores, torch::full({1}, sample + 1, at::kLong));               // 1; 1, 2
    }
    of_batches.add(group->rank() == 0 ? std::nan("") : 1.0 * group->rank(), group->rank());
    const TensorCallOptions on{.group = group};
    EXPECT_DOUBLE_EQ(mean.compute(on), (10 + 20 + 21) / 3.0);
    EXPECT_DOUBLE_EQ(of_batches.compute(on), (1 + 2 * 2) / 3.0);
    EXPECT_DOUBLE_EQ(accuracy.compute(on), 1 / 3.0);
    EXPECT_DOUBLE_EQ(top_two.compute(on), 1);
    mean.reset();
    EXPECT_TRUE(std::isnan(mean.compute(on)));
  });
}

TEST(Metrics, TakeLowPrecisionAndLargeCountsWithoutLosingSamples) {
  Mean mean;
  mean.add(torch::ones({1 << 20}, at::kBFloat16));
  mean.add(torch::zeros({1 << 20}, at::kHalf));
  EXPECT_EQ(mean.local(), 0.5);
  mean.add(torch::tensor({true, false}));
  EXPECT_EQ(mean.local(), 0.5);
}

TEST(Metrics, ExplainWhatDoesNotFit) {
  Accuracy accuracy(4);
  EXPECT_THAT(error_of([&] {
                accuracy.add(torch::ones({2, 3}), torch::zeros({2}, at::kLong));
              }),
              HasSubstr("top is 4, but there are 3 classes"));
  EXPECT_THAT(error_of([&] {
                accuracy.add(torch::ones({2, 9}), torch::zeros({3}, at::kLong));
              }),
              HasSubstr("they are [2, 9] and [3]"));
  EXPECT_THAT(error_of([] { Accuracy none(0); }), HasSubstr("top is 0"));
  EXPECT_THAT(error_of([] { Mean().add(1, -1); }), HasSubstr("weight is -1"));
}

}  // namespace
}  // namespace lockstep
