#include "ddp/sync/buckets/gradient_memory.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "ddp/testing/test_ranks.h"
#include "lockstep/communicator/communicator.h"

namespace lockstep::detail {
namespace {

constexpr std::int64_t kElements = 1 << 18;  // 1 MiB of float

using testing::Group;

Group lone_group() { return make_process_group(Communicator::create_threads(1).front()); }

TEST(GradientMemory, ServesGradientsOfItsSizesWhileOpenAndGradientsAreOff) {
  const Group group = lone_group();
  GradientMemory memory(group, {kElements * 4});
  EXPECT_FALSE(memory.owns(torch::empty({kElements}).data_ptr())) << "not open yet";
  memory.open();
  EXPECT_FALSE(memory.owns(torch::empty({kElements}).data_ptr())) << "a forward runs with gradients on";
  at::NoGradGuard backward;
  EXPECT_TRUE(memory.owns(torch::empty({kElements}).data_ptr()));
  EXPECT_FALSE(memory.owns(torch::empty({kElements + 1}).data_ptr())) << "another size";
  memory.close();
  EXPECT_FALSE(memory.owns(torch::empty({kElements}).data_ptr()));
}

TEST(GradientMemory, ABlockIsUsedAgainAfterItsTensor) {
  const Group group = lone_group();
  GradientMemory memory(group, {kElements * 4});
  memory.open();
  at::NoGradGuard backward;
  at::Tensor first = torch::full({kElements}, 7.0);
  void* const place = first.data_ptr();
  first = at::Tensor();
  at::Tensor second = torch::empty({kElements});
  EXPECT_EQ(second.data_ptr(), place);
}

TEST(GradientMemory, MoreTensorsThanItMayServeComeFromElsewhereAndAllAreDistinct) {
  const Group group = lone_group();
  GradientMemory memory(group, {kElements * 4});
  memory.open();
  at::NoGradGuard backward;
  std::vector<at::Tensor> tensors;
  int served = 0;
  for (int i = 0; i < 8; ++i) {
    tensors.push_back(torch::full({kElements}, double(i)));
    served += memory.owns(tensors.back().data_ptr()) ? 1 : 0;
  }
  EXPECT_EQ(served, 4);  // twice the number of such gradients, and two
  for (int i = 0; i < 8; ++i) EXPECT_TRUE((tensors[std::size_t(i)] == i).all().item<bool>());
}

TEST(GradientMemory, ATensorOutlivesThePoolAndTheGroup) {
  at::NoGradGuard backward;
  at::Tensor tensor;
  {
    Group group = lone_group();
    GradientMemory memory(group, {kElements * 4});
    memory.open();
    tensor = torch::full({kElements}, 3.0);
    ASSERT_TRUE(memory.owns(tensor.data_ptr()));
  }
  EXPECT_EQ(tensor.sum().item<double>(), 3.0 * kElements);
  tensor.resize_({2 * kElements});
  EXPECT_EQ(tensor[0].item<double>(), 3.0);
}

TEST(GradientMemory, ServesSeveralPoolsAtOnce) {
  Group one = lone_group(), two = lone_group();
  GradientMemory small(one, {kElements * 4}), large(two, {kElements * 8});
  small.open();
  large.open();
  at::NoGradGuard backward;
  EXPECT_TRUE(small.owns(torch::empty({kElements}).data_ptr()));
  EXPECT_TRUE(large.owns(torch::empty({2 * kElements}).data_ptr()));
  small.close();
  EXPECT_TRUE(large.owns(torch::empty({2 * kElements}).data_ptr()));
}

}  // namespace
}  // namespace lockstep::detail
