// Loops that do more than one forward and one backward per step: several forwards, several backwards, evaluation in
// between, accumulation of weighted batches.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "ddp/testing/test_models.h"
#include "lockstep/ddp/collectives.h"
#include "lockstep/ddp/distributed_data_parallel.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using namespace testing;  // the model, its data and its ranks

at::Tensor batch(const Group& group, std::int64_t rows = 4) {
  return torch::linspace(0, 1 + group->rank(), rows * 3).view({rows, 3});
}

torch::nn::Sequential normalised() {
  return torch::nn::Sequential(torch::nn::Linear(3, 3), torch::nn::BatchNorm1d(3), torch::nn::Linear(3, 1));
}

bool same_on_all_ranks(const at::Tensor& tensor, const Group& group) {
  at::Tensor first = tensor.detach().clone();
  group->broadcast(first, 0, {}).wait();
  at::Tensor different = torch::zeros({1});
  if (!torch::equal(first, tensor.detach())) different.fill_(1);
  group->all_reduce(different, {}).wait();
  return different.item<float>() == 0;
}

// The gradient that averaging by hand gives for `loss` of a copy of the model.
std::vector<at::Tensor> averaged_by_hand(const std::vector<at::Tensor>& parameters, const Group& group,
                                         const std::function<at::Tensor()>& loss) {
  for (const at::Tensor& parameter : parameters) parameter.mutable_grad() = at::Tensor();
  loss().backward();
  std::vector<at::Tensor> result;
  for (const at::Tensor& parameter : parameters) {
    at::Tensor gradient = parameter.grad().clone();
    group->all_reduce(gradient, {.op = ReduceOp::avg}).wait();
    result.push_back(gradient);
  }
  return result;
}

// ---- evaluation

TEST(DdpEvaluation, UsesTheSameStatisticsOnAllRanks) {
  run_ranks(3, [](const Group& group) {
    torch::nn::Sequential net = normalised();
    DistributedDataParallel ddp(net, {.process_group = group});
    for (int step = 0; step < 2; ++step) {
      ddp(batch(group)).sum().backward();
      ddp->eval();
      at::NoGradGuard no_grad;
      EXPECT_TRUE(same_on_all_ranks(ddp(torch::ones({2, 3})), group)) << "step " << step;
      if (group->rank() == 0) ddp(torch::ones({2, 3}));  // from the second one on without communication
      ddp->train();
    }
  });
}

TEST(DdpEvaluation, OnOneRankWorksAfterSyncBuffers) {
  run_ranks(2, [](const Group& group) {
    torch::nn::Sequential net = normalised();
    DistributedDataParallel ddp(net, {.process_group = group});
    ddp(batch(group)).sum().backward();
    ddp.sync_buffers();
    ddp->eval();
    if (group->rank() == 1) {
      at::NoGradGuard no_grad;
      ddp(torch::ones({2, 3}));
    }
    barrier({.group = group});
    EXPECT_TRUE(same_on_all_ranks(ddp->buffers()[0], group));
  });
}

TEST(DdpEvaluation, OnOneRankOnlySuggestsWhatToDo) {
  if (test_backend() != "lockstep")
    GTEST_SKIP() << "only Lockstep's engine notices that ranks call different operations";
  const auto errors = errors_of_ranks(2, [](const Group& group) {
    torch::nn::Sequential net = normalised();
    DistributedDataParallel ddp(net, {.process_group = group});
    ddp(batch(group)).sum().backward();
    at::NoGradGuard no_grad;
    if (group->rank() == 1) ddp(torch::ones({2, 3}));
    barrier({.group = group});
  });
  EXPECT_THAT(errors[1], HasSubstr("call sync_buffers() on all ranks before"));
}

// ---- several forwards

TEST(DdpForwards, TwoWithOneBackwardWorkWithBatchNorm) {
  for (const bool find_unused : {false, true}) {
    run_ranks(3, [&](const Group& group) {
      torch::nn::Sequential net = normalised();
      DistributedDataParallel ddp(net, {.process_group = group, .find_unused_parameters = find_unused});
      for (int step = 0; step < 3; ++step) {
        std::optional<GradientSynchronizer::NoSync> guard;
        guard.emplace(ddp.synchronizer());
        const auto expected = averaged_by_hand(net->parameters(), group, [&] {
          const at::Tensor first = net->forward(batch(group));
          return (first * net->forward(batch(group) + 1)).sum();
        });
        guard.reset();
        for (const at::Tensor& parameter : net->parameters()) parameter.mutable_grad() = at::Tensor();
        const at::Tensor first = ddp(batch(group));
        (first * ddp(batch(group) + 1)).sum().backward();
        expect_close(gradients(net->parameters()), expected);
      }
    });
  }
}

struct BranchesImpl : torch::nn::Module {
  BranchesImpl() {
    a = register_module("a", torch::nn::Linear(3, 1));
    b = register_module("b", torch::nn::Linear(3, 1));
    c = register_module("c", torch::nn::Linear(3, 1));
  }
  at::Tensor forward(const at::Tensor& x, bool left) { return left ? a(x) : b(x); }
  torch::nn::Linear a{nullptr}, b{nullptr}, c{nullptr};
};
TORCH_MODULE(Branches);

TEST(DdpForwards, ThatUseDifferentParametersShareOneBackwardOrHaveTheirOwn) {
  for (const bool one_backward : {true, false}) {
    run_ranks(2, [&](const Group& group) {
      Branches net;
      DistributedDataParallel ddp(net, {.process_group = group, .find_unused_parameters = true});
      for (int step = 0; step < 2; ++step) {
        const at::Tensor left = ddp(batch(group), true).sum(), right = ddp(batch(group), false).sum();
        if (one_backward) {
          (left + right).backward();
        } else {
          left.backward();
          right.backward();
        }
        for (const auto& layer : {net->a, net->b}) {
          EXPECT_TRUE(same_on_all_ranks(layer->weight.grad(), group));
          EXPECT_GT(layer->weight.grad().abs().sum().item<float>(), 0);
        }
        EXPECT_FALSE(net->c->weight.grad().defined());
        for (const at::Tensor& parameter : net->parameters()) parameter.mutable_grad() = at::Tensor();
      }
    });
  }
}

TEST(DdpForwards, AreDroppedWithTheirGraph) {
  run_ranks(2, [](const Group& group) {
    torch::nn::Sequential net = normalised();
    DistributedDataParallel ddp(net, {.process_group = group});
    for (int step = 0; step < 3; ++step) {
      ddp(batch(group));  // for a metric, with gradients on
      net->zero_grad();
      {
        const auto guard = ddp.no_sync();
        ddp(batch(group)).sum().backward();
      }
      EXPECT_FALSE(same_on_all_ranks(net->parameters()[0].grad(), group)) << "only accumulated";
      ddp(batch(group)).sum().backward();
      EXPECT_TRUE(same_on_all_ranks(net->parameters()[0].grad(), group));
    }
  });
}

TEST(DdpForwards, MayChangeTheirOutputInPlace) {
  run_ranks(2, [](const Group& group) {
    torch::nn::Linear net(3, 2);
    DistributedDataParallel ddp(net, {.process_group = group, .find_unused_parameters = true, .sample_weighted = true});
    const std::int64_t rows = 1 + 2 * group->rank();
    for (int step = 0; step < 2; ++step) {
      net->zero_grad();
      ddp(torch::ones({rows, 3})).mul_(2).mean(0).sum().backward();
      EXPECT_TRUE(torch::allclose(net->weight.grad(), torch::full({2, 3}, 2.0))) << net->weight.grad();
    }
  });
}

// ---- several backwards

TEST(DdpBackwards, TwoOverOneForwardWorkWithASearch) {
  run_ranks(2, [](const Group& group) {
    Branches net;
    DistributedDataParallel ddp(net, {.process_group = group, .find_unused_parameters = true});
    for (int step = 0; step < 2; ++step) {
      for (const at::Tensor& parameter : net->parameters()) parameter.mutable_grad() = at::Tensor();
      const at::Tensor loss = ddp(torch::full({1, 3}, 1.0 + group->rank()), true).sum();
      loss.backward({}, /*retain_graph=*/true);
      EXPECT_TRUE((net->a->weight.grad() == 1.5).all().item<bool>());
      loss.backward();
      EXPECT_TRUE((net->a->weight.grad() == 3).all().item<bool>());
      EXPECT_FALSE(net->b->weight.grad().defined());
    }
  });
}

// The output depends on the layer only while the gate is open.
struct GateImpl : torch::nn::Module {
  GateImpl() { layer = register_module("layer", torch::nn::Linear(3, 1)); }
  at::Tensor forward(const at::Tensor& x, bool open) { return open ? layer(x) : x.sum() * 2; }
  torch::nn::Linear layer{nullptr};
};
TORCH_MODULE(Gate);

TEST(DdpBackwards, OfOneRankMayReachNoParameterWithASearch) {
  run_ranks(2, [](const Group& group) {
    Gate net;
    DistributedDataParallel ddp(net, {.process_group = group, .find_unused_parameters = true});
    for (int step = 0; step < 4; ++step) {
      net->zero_grad();
      ddp(torch::ones({1, 3}).requires_grad_(true), group->rank() == step % 2).sum().backward();
      EXPECT_TRUE((net->layer->weight.grad() == 0.5).all().item<bool>()) << net->layer->weight.grad();
    }
  });
}

TEST(DdpBackwards, OfOneRankThatReachNoParameterAreAnErrorWithoutASearch) {
  const auto errors = errors_of_ranks(2, [](const Group& group) {
    Gate net;
    DistributedDataParallel ddp(net, {.process_group = group});
    ddp(torch::ones({1, 3}).requires_grad_(true), group->rank() == 0).sum().backward();
  });
  for (const std::string& error : errors) EXPECT_THAT(error, HasSubstr("rank 1: no parameter got a gradient"));
}

TEST(DdpBackwards, AnInnerDerivativeBeforeTheFirstPassOfAStaticGraphIsNoPass) {
  run_ranks(2, [](const Group& group) {
    torch::nn::Linear net(2, 1);
    DistributedDataParallel ddp(net, {.process_group = group, .static_graph = true});
    for (int step = 0; step < 3; ++step) {
      net->zero_grad();
      at::Tensor x = torch::full({1, 2}, 1.0 + group->rank()).requires_grad_(true);
      const at::Tensor output = ddp(x).pow(2).sum();
      const auto inner = torch::autograd::grad({output}, {x}, {}, true, /*create_graph=*/true);
      (output + inner[0].pow(2).sum()).backward();
      EXPECT_TRUE(same_on_all_ranks(net->weight.grad(), group));
    }
    EXPECT_EQ(ddp.logging_data().steps, 3);
  });
}

// ---- weights and accumulation

TEST(DdpWeights, EachAccumulatedBatchIsWeightedSeparately) {
  const std::vector<std::vector<std::int64_t>> sizes = {{3, 1}, {0, 2}, {1, 4}};  // of each micro-batch, on two ranks
  const auto whole = [&](std::size_t micro) {
    const std::int64_t rows = sizes[micro][0] + sizes[micro][1];
    return torch::linspace(-1, 1 + static_cast<double>(micro), rows * 8).view({rows, 8});
  };
  Net reference = net_with_seed(1);
  for (std::size_t micro = 0; micro < sizes.size(); ++micro) reference(whole(micro)).pow(2).mean().backward();
  for (const bool zero_in_place : {false, true}) {
    run_ranks(2, [&](const Group& group) {
      Net net = net_with_seed(1);
      DistributedDataParallel ddp(net, {.process_group = group, .sample_weighted = true});
      const auto r = static_cast<std::size_t>(group->rank());
      for (int step = 0; step < 3; ++step) {
        for (const at::Tensor& parameter : net->parameters()) {
          if (zero_in_place && parameter.grad().defined()) {
            parameter.grad().zero_();
          } else {
            parameter.mutable_grad() = at::Tensor();
          }
        }
        for (std::size_t micro = 0; micro < sizes.size(); ++micro) {
          const at::Tensor x = whole(micro).split_with_sizes(sizes[micro])[r];
          std::optional<GradientSynchronizer::NoSync> guard;
          if (micro + 1 < sizes.size()) guard.emplace(ddp.synchronizer());
          ddp(x).pow(2).mean().backward();
        }
        expect_close(gradients(net->parameters()), gradients(reference->parameters()));
      }
    });
  }
}

TEST(DdpWeights, AParameterThatARankNeverUsesGetsTheAverage) {
  run_ranks(2, [](const Group& group) {
    Branches net;
    DistributedDataParallel ddp(net, {.process_group = group, .static_graph = true, .sample_weighted = true});
    for (int step = 0; step < 3; ++step) {
      for (const at::Tensor& parameter : net->parameters()) parameter.mutable_grad() = at::Tensor();
      // a on rank 0 with one of four samples, b on rank 1 with three
      const at::Tensor loss = ddp(torch::ones({1 + 2 * group->rank(), 3}), group->rank() == 0).mean();
      loss.backward({}, /*retain_graph=*/true);
      loss.backward();
      EXPECT_TRUE((net->a->weight.grad() == 0.5).all().item<bool>()) << net->a->weight.grad();
      EXPECT_TRUE(torch::allclose(net->b->weight.grad(), torch::full({1, 3}, 1.5))) << net->b->weight.grad();
    }
  });
}

TEST(DdpWeights, TwoForwardsOfDifferentSharesInOneBackwardAreRefused) {
  const auto errors = errors_of_ranks(2, [](const Group& group) {
    torch::nn::Linear net(3, 1);
    DistributedDataParallel ddp(net, {.process_group = group, .sample_weighted = true});
    const at::Tensor first = ddp(torch::ones({1 + group->rank(), 3})).mean();
    (first + ddp(torch::ones({2, 3})).mean()).backward();
  });
  for (const std::string& error : errors) EXPECT_THAT(error, HasSubstr("different shares of the samples"));
}

// ---- join

TEST(DdpJoin, MayStopAllRanksWhenOneHasNoMoreData) {
  run_ranks(3, [](const Group& group) {
    torch::nn::Linear net(3, 1);
    DistributedDataParallel ddp(net, {.process_group = group});
    int steps = 0;
    const auto loop = [&] {
      for (steps = 0; steps < 2 + group->rank(); ++steps) ddp(torch::ones({1, 3})).sum().backward();
    };
    try {
      ddp.join(loop, {.throw_on_early_termination = true});
      ADD_FAILURE() << "rank 0 has two steps, the others more";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), StatusCode::closed) << error.what();
    }
    EXPECT_EQ(steps, 2);
    ddp(torch::ones({1, 3})).sum().backward();  // the group remains usable
    ddp.verify_in_sync();
  });
}

TEST(DdpJoin, ARankThatOnlyShadowedTheFirstStaticPassTrainsAfterwards) {
  run_ranks(3, [](const Group& group) {
    torch::nn::Linear net(3, 1);
    DistributedDataParallel ddp(net, {.process_group = group, .static_graph = true});
    ddp.join([&] {
      for (int step = 0; step < group->rank(); ++step) ddp(torch::ones({1, 3})).sum().backward();
    });
    for (int step = 0; step < 2; ++step) {
      net->zero_grad();
      ddp(torch::full({1, 3}, 1.0 + group->rank())).sum().backward();
      EXPECT_TRUE((net->weight.grad() == 2).all().item<bool>()) << net->weight.grad();
    }
  });
}

}  // namespace
}  // namespace lockstep
