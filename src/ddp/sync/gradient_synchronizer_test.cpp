// DDP with models, data and loops of every kind; distributed_data_parallel_test.cpp has the basics.
#include "lockstep/ddp/gradient_synchronizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "ddp/testing/test_models.h"
#include "lockstep/ddp/distributed_data_parallel.h"

namespace lockstep {
namespace {

using namespace testing;  // the model, its data and its ranks

struct MixedImpl : torch::nn::Module {
  MixedImpl() {
    single = register_module("single", torch::nn::Linear(2, 2));
    twice = register_module("twice", torch::nn::Linear(2, 2));
    twice->to(torch::kDouble);
    half = register_module("half", torch::nn::Linear(2, 2));
    half->to(torch::kBFloat16);
    register_module("again", single);  // shared: two names
    frozen = register_parameter("frozen", torch::ones({2}), /*requires_grad=*/false);
  }
  std::tuple<at::Tensor, std::vector<at::Tensor>> forward(const at::Tensor& x, const at::Tensor& y) {
    return {single(single(x)) * frozen, {twice(y.to(torch::kDouble)), half(y.to(torch::kBFloat16))}};
  }
  torch::nn::Linear single{nullptr}, twice{nullptr}, half{nullptr};
  at::Tensor frozen;
};
TORCH_MODULE(Mixed);

TEST(DdpModels, SharedFrozenAndMixedTypesSeveralInputsAndNestedOutputs) {
  run_ranks(3, [](const Group& group) {
    Mixed net;
    DistributedDataParallel ddp(net, {.process_group = group, .find_unused_parameters = true});
    for (int step = 0; step < 2; ++step) {
      for (auto& parameter : net->parameters()) parameter.mutable_grad() = at::Tensor();
      auto [first, rest] = ddp(torch::ones({1, 2}), torch::full({1, 2}, 1.0 + group->rank()));
      (first.sum() + rest[0].sum() + rest[1].sum()).backward();
      EXPECT_TRUE((net->twice->weight.grad() == 2).all().item<bool>()) << net->twice->weight.grad();
      EXPECT_TRUE((net->half->weight.grad() == 2).all().item<bool>()) << net->half->weight.grad();
      EXPECT_EQ(net->half->weight.grad().scalar_type(), torch::kBFloat16);
      EXPECT_FALSE(net->frozen.grad().defined());
    }
    EXPECT_EQ(ddp.logging_data().parameter_count, 6);
  });
}

TEST(DdpModels, ChannelsLastWeights) {
  run_ranks(2, [](const Group& group) {
    torch::nn::Conv2d net(torch::nn::Conv2dOptions(4, 8, 3));
    net->weight.set_data(net->weight.contiguous(torch::MemoryFormat::ChannelsLast));
    DistributedDataParallel ddp(net, {.process_group = group});
    for (int step = 0; step < 2; ++step) {
      net->zero_grad();
      ddp(torch::full({1, 4, 5, 5}, 1.0 + group->rank())).sum().backward();
      EXPECT_TRUE(torch::allclose(net->weight.grad(), torch::full({8, 4, 3, 3}, 9 * 1.5))) << net->weight.grad();
    }
  });
}

// Batches of unequal size; rank 2 has none at all in the last step.
TEST(DdpUneven, SampleWeightedAveragingEqualsOneProcessWithTheWholeBatch) {
  const auto expected = whole_batch_gradients(10);
  run_ranks(3, [&](const Group& group) {
    Net net = net_with_seed(1);
    DistributedDataParallel ddp(net, {.process_group = group, .sample_weighted = true});
    const std::vector<std::int64_t> sizes = {7, 3, 0};
    const auto x = inputs(10).split_with_sizes(sizes), y = targets(10).split_with_sizes(sizes);
    const auto r = static_cast<std::size_t>(group->rank());
    for (int step = 0; step < 2; ++step) {
      net->zero_grad();
      loss_of(ddp(x[r]), y[r]).backward();  // the mean over nothing is NaN
      expect_close(gradients(net->parameters()), expected);
    }
  });
}

TEST(DdpUneven, JoinLetsRanksTakeDifferentNumbersOfSteps) {
  for (const bool weighted : {false, true}) {
    std::mutex mutex;
    std::vector<std::vector<at::Tensor>> results(3);
    run_ranks(3, [&](const Group& group) {
      torch::nn::Sequential net(torch::nn::Linear(2, 3), torch::nn::BatchNorm1d(3), torch::nn::Linear(3, 1));
      DistributedDataParallel ddp(net, {.process_group = group, .sample_weighted = weighted});
      torch::optim::SGD optimizer(ddp->parameters(), 0.1);
      int steps = 0;
      ddp.join([&] {
        for (; steps < 2 * group->rank(); ++steps) {  // 0, 2 and 4 steps
          optimizer.zero_grad();
          ddp(torch::rand({4, 2})).pow(2).sum().backward();
          optimizer.step();
        }
      });
      EXPECT_EQ(steps, 2 * group->rank());
      ddp.verify_in_sync();
      ddp(torch::rand({4, 2})).sum().backward();  // training continues
    });
  }
}

TEST(DdpUneven, JoinShadowsHooksSearchesAndAccumulation) {
  run_ranks(3, [](const Group& group) {
    Net net = net_with_seed(1, 16);
    DistributedDataParallel ddp(net, {.process_group = group, .find_unused_parameters = true});
    std::size_t buckets = 0;
    ddp.register_comm_hook(make_comm_hook("average", [&](const GradBucket& bucket, ProcessGroup& over) {
      ++buckets;
      return HookFuture(over.all_reduce(bucket.buffer(), {.op = ReduceOp::avg}));
    }));
    torch::optim::SGD optimizer(ddp->parameters(), 0.1);
    ddp.join([&] {
      for (int step = 0; step < group->rank(); ++step) {  // 0, 1 and 2 steps
        optimizer.zero_grad();
        {
          const auto guard = ddp.no_sync();
          loss_of(ddp(inputs(4)), targets(4)).backward();
        }
        loss_of(ddp(inputs(4)), targets(4)).backward();
        optimizer.step();
      }
    });
    EXPECT_EQ(buckets, 2 * ddp.logging_data().bucket_bytes.size()) << "two synchronised steps, on every rank";
    ddp.verify_in_sync();
  });
}

TEST(DdpUneven, AnExceptionInsideJoinNamesItsRankOnAllRanks) {
  const auto errors = errors_of_ranks(2, [](const Group& group) {
    Net net(16);
    DistributedDataParallel ddp(net, {.process_group = group});
    ddp.join([&] {
      if (group->rank() == 1) throw std::runtime_error("no such file");
      loss_of(ddp(inputs(4)), targets(4)).backward();
    });
  });
  EXPECT_THAT(errors[0], ::testing::HasSubstr("rank 1 left join() with an exception: no such file"));
  EXPECT_EQ(errors[1], "no such file");
}

TEST(DdpUneven, JoinDividesByAllRanksOrByThoseStillTraining) {
  for (const bool by_world : {true, false}) {
    run_ranks(2, [&](const Group& group) {
      torch::nn::Linear net(torch::nn::LinearOptions(1, 1).bias(false));
      DistributedDataParallel ddp(net, {.process_group = group});
      ddp.join(
          [&] {
            for (int step = 0; step <= group->rank(); ++step) {
              net->zero_grad();
              ddp(torch::ones({1, 1})).sum().backward();
              EXPECT_EQ(net->weight.grad().item<float>(), step == 0 ? 1.0f : by_world ? 0.5f : 1.0f);
            }
          },
          {.divide_by_initial_world_size = by_world});
    });
  }
}

TEST(DdpHooks, AContinuationMayIssueAnotherCollective) {
  run_ranks(2, [](const Group& group) {
    Net net = net_with_seed(1);
    DistributedDataParallel ddp(net, {.process_group = group});
    ddp.register_comm_hook(make_comm_hook("twice", [](const GradBucket& bucket, ProcessGroup& over) {
      bucket.buffer().fill_(1.0 + over.rank());
      return HookFuture({over.all_reduce(bucket.buffer(), {})},
                        [buffer = bucket.buffer(), &over] { return HookFuture(over.all_reduce(buffer, {})); });
    }));
    loss_of(ddp(inputs(4)), targets(4)).backward();
    for (const auto& gradient : gradients(net->parameters())) EXPECT_TRUE((gradient == 6).all().item<bool>());
    EXPECT_EQ(ddp.logging_data().comm_hook, "twice");
    EXPECT_THROW(ddp.register_comm_hook(make_comm_hook("late", {})), Error);
  });
}

}  // namespace
}  // namespace lockstep
