#include "ddp/sync/replicas/replica_state.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "ddp/testing/test_ranks.h"

namespace lockstep::detail {
namespace {

using testing::Group;
using testing::run_ranks;

TEST(BroadcastDiffering, SendsWhatDiffersOnAnyRankAndNothingElse) {
  run_ranks(3, [](const Group& group) {
    const at::Tensor same = torch::ones({4}), ids = torch::arange(3);
    at::Tensor last_differs = torch::full({2, 2}, group->rank() == 2 ? 5.0F : 1.0F);
    at::Tensor root_differs = torch::full({3}, group->rank() == 1 ? 7.0F : 2.0F);
    const at::Tensor empty = torch::empty({0});
    EXPECT_EQ(broadcast_differing(*group, {same, last_differs, ids, root_differs, empty}, 1), 2u);
    EXPECT_TRUE((last_differs == 1).all().item<bool>()) << last_differs;
    EXPECT_TRUE((root_differs == 7).all().item<bool>()) << root_differs;
    EXPECT_TRUE((same == 1).all().item<bool>());
    EXPECT_EQ(broadcast_differing(*group, {same, last_differs, ids, root_differs, empty}, 1), 0u);
  });
}

// Bits count, not values: 0.0 and -0.0 are equal, but are not the same replica.
TEST(BroadcastDiffering, ComparesBits) {
  run_ranks(2, [](const Group& group) {
    at::Tensor zero = torch::full({1}, group->rank() == 0 ? 0.0F : -0.0F);
    EXPECT_EQ(broadcast_differing(*group, {zero}, 0), 1u);
    EXPECT_FALSE(std::signbit(zero.item<float>()));
  });
}

TEST(BroadcastDiffering, WithoutTensorsSendsNothing) {
  run_ranks(2, [](const Group& group) { EXPECT_EQ(broadcast_differing(*group, {}, 0), 0u); });
}

}  // namespace
}  // namespace lockstep::detail
