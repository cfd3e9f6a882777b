// The bookkeeping of the reducer, without autograd.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <limits>

#include "ddp/sync/buckets/gradient_order.h"
#include "ddp/sync/pending_forwards.h"
#include "ddp/sync/static_graph.h"
#include "ddp/sync/used_parameters.h"
#include "ddp/sync/weighted_gradients.h"
#include "ddp/testing/test_ranks.h"

namespace lockstep::detail {
namespace {

using Mode = PendingForwards::Mode;
using Indices = std::vector<std::size_t>;

PendingForwards::Record record(bool synchronise, Indices unused = {}) {
  return std::make_shared<const ForwardRecord>(ForwardRecord{.synchronise = synchronise, .unused = std::move(unused)});
}

TEST(PendingForwardsTest, TheForwardDecidesAndAverageWins) {
  PendingForwards pending;
  EXPECT_EQ(pending.mode(), Mode::unknown);
  const auto accumulate = record(false), average = record(true);
  pending.add(accumulate);
  EXPECT_EQ(pending.mode(), Mode::accumulate);
  EXPECT_FALSE(pending.synchronising());
  pending.add(average);
  EXPECT_EQ(pending.mode(), Mode::synchronise);
  EXPECT_TRUE(pending.synchronising());
  pending.end_pass();
  EXPECT_EQ(pending.mode(), Mode::unknown);
}

TEST(PendingForwardsTest, AForwardIsOverWithItsBackwardAndMayHaveAnother) {
  PendingForwards pending;
  const auto first = record(true), second = record(false);
  pending.add(first);
  pending.add(second);
  pending.reach(first);
  pending.end_backward();
  EXPECT_EQ(pending.mode(), Mode::accumulate) << "the second one still waits";
  pending.reach(first);
  EXPECT_EQ(pending.mode(), Mode::synchronise) << "a second backward over the first one's graph";
  pending.end_backward();
  pending.reach(second);
  pending.end_backward();
  EXPECT_EQ(pending.mode(), Mode::unknown);
}

TEST(PendingForwardsTest, WhatWasReachedDecidesBeforeWhatWaits) {
  PendingForwards pending;
  const auto kept = record(true), accumulate = record(false);
  pending.add(kept);
  pending.add(accumulate);
  pending.reach(accumulate);
  EXPECT_EQ(pending.mode(), Mode::accumulate) << "the one that waits may be an output that the program keeps";
  pending.forget_reached();
  EXPECT_EQ(pending.mode(), Mode::synchronise);
  pending.reach(kept);
  pending.forget_reached();
  EXPECT_TRUE(pending.synchronising()) << "it was no backward";
}

TEST(PendingForwardsTest, ADerivativeWithAGraphMayOutliveTheOutputs) {
  PendingForwards pending;
  auto forward = record(true);
  pending.add(forward);
  pending.derive(forward);
  forward.reset();
  EXPECT_EQ(pending.mode(), Mode::synchronise);
  EXPECT_TRUE(pending.synchronising());
  pending.end_pass();
  EXPECT_EQ(pending.mode(), Mode::unknown);
}

TEST(PendingForwardsTest, AForwardWhoseGraphWasFreedNoLongerWaits) {
  PendingForwards pending;
  auto dropped = record(true);
  pending.add(dropped);
  dropped.reset();
  EXPECT_EQ(pending.mode(), Mode::unknown);
  EXPECT_FALSE(pending.synchronising());
  pending.add(std::make_shared<const ForwardRecord>(ForwardRecord{.hooked = false}));
  EXPECT_EQ(pending.mode(), Mode::synchronise) << "no hook holds this one, so it is kept";
}

TEST(PendingForwardsTest, UnusedIsWhatNoForwardUsed) {
  PendingForwards pending;
  EXPECT_EQ(pending.unused(), Indices());
  const auto first = record(true, {0, 1, 4}), second = record(true, {1, 3, 4});
  pending.add(first);
  EXPECT_EQ(pending.unused(), (Indices{0, 1, 4}));
  pending.add(second);
  EXPECT_EQ(pending.unused(), (Indices{1, 4}));
}

TEST(StaticGraphTest, LearnsCountsOrderAndWhatIsUnused) {
  StaticGraph graph(4);
  for (std::size_t index : {2, 0, 2}) graph.arrived(index);
  EXPECT_TRUE(graph.any_arrived());
  EXPECT_EQ(graph.unused(), Indices()) << "not known yet";
  graph.finish(/*shadowed=*/false);
  EXPECT_TRUE(graph.known());
  EXPECT_EQ(graph.order(), (Indices{2, 0}));
  EXPECT_EQ(graph.unused(), (Indices{1, 3}));
  graph.adopt({9, 9, 9, 9});
  EXPECT_EQ(graph.counts(), (std::vector<std::int64_t>{1, 0, 2, 0})) << "its own count";
}

TEST(StaticGraphTest, ARankWithoutArrivalsTakesTheCountsOfAnother) {
  StaticGraph graph(2);
  graph.finish(/*shadowed=*/true);
  EXPECT_FALSE(graph.any_arrived());
  graph.adopt({1, 0});
  EXPECT_EQ(graph.unused(), (Indices{1}));
}

TEST(GradientOrderTest, OneRanksOrderCountsAndWhatItLacksComesLastFromTheEnd) {
  testing::run_ranks(3, [](const testing::Group& group) {
    const ObservedOrder mine = group->rank() == 1 ? ObservedOrder{.order = {3, 1, 3}, .counts = {0, 1, 0, 2, 0}}
                                                  : ObservedOrder{.order = {0}, .counts = {1, 1, 1, 1, 1}};
    const ObservedOrder agreed = agree_on_order(*group, /*authority=*/1, 5, mine);
    EXPECT_EQ(agreed.order, (Indices{3, 1, 4, 2, 0}));
    EXPECT_EQ(agreed.counts, (std::vector<std::int64_t>{0, 1, 0, 2, 0}));
    EXPECT_TRUE(agree_on_order(*group, 0, 2, {}).counts.empty());
  });
}

TEST(UsedParametersTest, AnywhereMeansUsedByAnyRankSinceTheLastPass) {
  testing::run_ranks(3, [](const testing::Group& group) {
    UsedParameters used(group, 4);
    EXPECT_TRUE(used.anywhere(3)) << "nothing is known before the first exchange";
    const auto rank = static_cast<std::size_t>(group->rank());
    used.mark(rank);
    EXPECT_TRUE(used.here(rank));
    EXPECT_EQ(used.unused_here(), 3);
    used.begin_exchange();
    used.end_exchange();
    for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(used.anywhere(i), i < 3);
    used.reset();
    EXPECT_FALSE(used.here(rank));
    EXPECT_TRUE(used.anywhere(0)) << "until the next exchange";
    used.end_exchange();  // nothing in flight
  });
}

struct WeightedTest : ::testing::Test {
  std::vector<at::Tensor> parameters = {torch::zeros({2}), torch::zeros({2})};
  WeightedGradients weights{parameters};
  void gradient(std::size_t i, double value) { parameters[i].mutable_grad() = torch::full({2}, value); }
  double value(std::size_t i) const { return parameters[i].grad()[0].item<double>(); }
};

TEST_F(WeightedTest, OnlyArrivingGradientsAreWeighted) {
  gradient(0, 1);
  weights.begin(3);
  EXPECT_FALSE(parameters[0].grad().defined());
  gradient(0, 2);
  weights.arrived(0, true);
  gradient(0, 2);  // once more in the same backward
  weights.arrived(0, true);
  weights.settle(0);
  EXPECT_EQ(value(0), 1 + 3 * 2 + 3 * 2);
  weights.end();
  EXPECT_EQ(value(0), 13);
  EXPECT_FALSE(parameters[1].grad().defined()) << "nothing came";
}

TEST_F(WeightedTest, AWeightOfZeroDropsEvenNaN) {
  gradient(0, 5);
  weights.begin(0);
  for (std::size_t i : {0, 1}) {
    gradient(i, std::numeric_limits<double>::quiet_NaN());
    weights.arrived(i, true);
  }
  weights.end();
  EXPECT_EQ(value(0), 5);
  EXPECT_EQ(value(1), 0);
}

TEST_F(WeightedTest, SharedMemoryIsNotWritten) {
  const at::Tensor shared = torch::full({2}, 2.0);
  weights.begin(3);
  parameters[0].mutable_grad() = shared.view({2});
  weights.arrived(0, /*exclusive=*/false);
  weights.end();
  EXPECT_EQ(value(0), 6);
  EXPECT_EQ(shared[0].item<double>(), 2);
}

TEST_F(WeightedTest, AWeightOfOneChangesNothing) {
  gradient(0, 1);
  const void* memory = parameters[0].grad().data_ptr();
  weights.begin(1);
  EXPECT_FALSE(weights.active());
  EXPECT_EQ(parameters[0].grad().data_ptr(), memory);
  weights.end();
}

}  // namespace
}  // namespace lockstep::detail
