#include "ddp/sync/buckets/bucket.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <limits>

#include "ddp/testing/test_ranks.h"
#include "lockstep/communicator/communicator.h"

namespace lockstep::detail {
namespace {

Bucket bucket_of(ProcessGroup& group, const std::vector<at::Tensor>& parameters, bool alone) {
  std::vector<Bucket::Strides> strides;
  for (const at::Tensor& parameter : parameters) strides.push_back(gradient_strides(parameter));
  return {group, parameters, strides, alone};
}

using testing::Group;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

class BucketTest : public ::testing::Test {
 protected:
  Group group_ = make_process_group(Communicator::create_threads(1).front());
};

TEST_F(BucketTest, PacksGradientsOneAfterTheOther) {
  Bucket bucket = bucket_of(*group_, {torch::zeros({2, 2}), torch::zeros({3})}, false);
  bucket.put(0, torch::full({2, 2}, 1.0), 1);
  bucket.put(1, torch::full({3}, 2.0), 1);
  EXPECT_TRUE(torch::equal(bucket.flat(), torch::tensor({1., 1., 1., 1., 2., 2., 2.}, torch::kFloat)));
  EXPECT_EQ(bucket.bytes(), 28);
  bucket.flat().mul_(2);  // the reduction
  EXPECT_TRUE(torch::equal(bucket.reduced(1), torch::full({3}, 4.0)));
  EXPECT_FALSE(bucket.reduced(1).is_view()) << "an optimizer may detach_() it";
}

TEST_F(BucketTest, AGradientThatIsTheViewAlreadyIsNotCopied) {
  Bucket bucket = bucket_of(*group_, {torch::zeros({3})}, false);
  const at::Tensor view = bucket.reduced(0);
  view.fill_(5);
  bucket.put(0, view, 1);
  EXPECT_TRUE(bucket.in_place(0, view));
  EXPECT_TRUE(torch::equal(bucket.flat(), torch::full({3}, 5.0)));
}

TEST_F(BucketTest, AMissingGradientAndOneOfWeightZeroAreZeroEvenIfNaN) {
  Bucket bucket = bucket_of(*group_, {torch::zeros({2}), torch::zeros({2})}, false);
  bucket.flat().fill_(9);
  bucket.put(0, at::Tensor(), 1);
  bucket.put(1, torch::full({2}, kNaN), 0);
  EXPECT_TRUE(torch::equal(bucket.flat(), torch::zeros({4})));
}

TEST_F(BucketTest, ALargeGradientIsReducedWhereItIs) {
  const at::Tensor gradient = torch::full({4, 5}, 2.0);
  Bucket bucket = bucket_of(*group_, {torch::zeros({4, 5})}, true);
  bucket.put(0, gradient, 1.5);
  EXPECT_TRUE(bucket.in_place(0, gradient));
  EXPECT_EQ(bucket.flat().data_ptr(), gradient.data_ptr());
  EXPECT_TRUE(torch::equal(gradient, torch::full({4, 5}, 3.0)));
  bucket.release();
  EXPECT_FALSE(bucket.flat().defined());
}

TEST_F(BucketTest, ALargeGradientThatMustStayAsItIsIsCopied) {
  const at::Tensor gradient = torch::full({4, 5}, 2.0);
  Bucket bucket = bucket_of(*group_, {torch::zeros({4, 5})}, true);
  bucket.put(0, gradient, 1, Bucket::Memory::own);
  EXPECT_FALSE(bucket.in_place(0, gradient));
  EXPECT_TRUE(torch::equal(bucket.reduced(0), gradient));
}

TEST_F(BucketTest, ALargeGradientOfOtherStridesIsCopied) {
  const at::Tensor gradient = torch::arange(20.).reshape({5, 4}).t();  // the parameter is contiguous
  Bucket bucket = bucket_of(*group_, {torch::zeros({4, 5})}, true);
  bucket.put(0, gradient, 1);
  EXPECT_FALSE(bucket.in_place(0, gradient));
  EXPECT_TRUE(torch::equal(bucket.reduced(0), gradient));
  EXPECT_TRUE(torch::equal(bucket.flat(), gradient.contiguous().flatten()));
}

TEST_F(BucketTest, ChannelsLastKeepsItsLayout) {
  const at::Tensor parameter = torch::zeros({2, 3, 4, 4}).contiguous(torch::MemoryFormat::ChannelsLast);
  const at::Tensor gradient = torch::rand({2, 3, 4, 4}).contiguous(torch::MemoryFormat::ChannelsLast);
  for (const bool alone : {false, true}) {
    Bucket bucket = bucket_of(*group_, {parameter}, alone);
    bucket.put(0, gradient, 1);
    EXPECT_EQ(bucket.reduced(0).strides(), parameter.strides());
    EXPECT_TRUE(torch::equal(bucket.reduced(0), gradient));
    EXPECT_EQ(bucket.in_place(0, gradient), alone);
  }
}

TEST_F(BucketTest, WeightsAreNotRoundedToSixteenBits) {
  const double weight = 257.0 / 256;  // 1 in bfloat16
  Bucket bucket = bucket_of(*group_, {torch::zeros({1}, torch::kBFloat16)}, false);
  bucket.put(0, torch::full({1}, 250.0, torch::kBFloat16), weight);
  EXPECT_EQ(bucket.flat().item<double>(), 251.0);
}

}  // namespace
}  // namespace lockstep::detail
