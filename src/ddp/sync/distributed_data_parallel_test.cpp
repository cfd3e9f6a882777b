// What DDP promises, with ranks as threads. tests/ddp does the same between processes.
#include "lockstep/ddp/distributed_data_parallel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "ddp/testing/test_models.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using namespace testing;  // the model, its data and its ranks

class Ddp : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, Ddp, ::testing::Values(1, 2, 3, 4));

TEST_P(Ddp, GradientsAreThoseOfTheWholeBatch) {
  const auto expected = whole_batch_gradients(12);
  run_ranks(GetParam(), [&](const Group& group) {
    Net net = net_with_seed(1 + static_cast<std::uint64_t>(group->rank()));  // others start elsewhere
    DistributedDataParallel ddp(net, {.process_group = group});
    for (int step = 0; step < 3; ++step) {  // before and after the buckets are rebuilt
      net->zero_grad();
      loss_of(ddp(share(inputs(12), group)), share(targets(12), group)).backward();
      expect_close(gradients(net->parameters()), expected);
    }
    EXPECT_TRUE(ddp.logging_data().buckets_rebuilt);
    EXPECT_EQ(ddp.logging_data().steps, 3);
  });
}

TEST_P(Ddp, ReplicasStayBitIdenticalThroughTraining) {
  run_ranks(GetParam(), [&](const Group& group) {
    Net net = net_with_seed(1 + static_cast<std::uint64_t>(group->rank()));
    DistributedDataParallel ddp(net, {.process_group = group, .verify_every = 2});
    torch::optim::SGD optimizer(ddp->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
    for (int step = 0; step < 5; ++step) {
      optimizer.zero_grad();
      loss_of(ddp(share(inputs(12), group)), share(targets(12), group)).backward();
      optimizer.step();
    }
    ddp.verify_in_sync();
  });
}

TEST_P(Ddp, AccumulationUnderNoSyncEqualsOneLargeBatch) {
  const auto expected = whole_batch_gradients(24);
  run_ranks(GetParam(), [&](const Group& group) {
    Net net = net_with_seed(1);
    DistributedDataParallel ddp(net, {.process_group = group});
    const auto x = share(inputs(24), group).chunk(2), y = share(targets(24), group).chunk(2);
    {
      const auto guard = ddp.no_sync();
      (loss_of(ddp(x[0]), y[0]) / 2).backward();
    }
    (loss_of(ddp(x[1]), y[1]) / 2).backward();
    expect_close(gradients(net->parameters()), expected);
  });
}

TEST(DdpOptionsTest, GradientsMayBeViewsOfBucketsOrStayWhereAutogradPutThem) {
  const auto expected = whole_batch_gradients(12);
  for (const bool view : {false, true}) {
    run_ranks(2, [&](const Group& group) {
      Net net = net_with_seed(1);
      DistributedDataParallel ddp(
          net,
          {.process_group = group, .bucket_cap_mb = 0.001, .first_bucket_mb = 0.001, .gradient_as_bucket_view = view});
      at::Tensor kept;
      for (int step = 0; step < 4; ++step) {
        net->zero_grad();
        for (auto& parameter : net->parameters()) parameter.mutable_grad() = at::Tensor();
        loss_of(ddp(share(inputs(12), group)), share(targets(12), group)).backward();
        expect_close(gradients(net->parameters()), expected);
        // The buckets are rebuilt after the first step; from then on a view is always the same memory.
        if (step == 1) kept = net->last->bias.grad();
        EXPECT_TRUE(step < 2 || view == (kept.data_ptr() == net->last->bias.grad().data_ptr()));
      }
      EXPECT_GT(ddp.logging_data().bucket_bytes.size(), 3u);
    });
  }
}

TEST(DdpConstruction, TakesParametersAndBuffersFromRankZero) {
  run_ranks(3, [](const Group& group) {
    torch::nn::Sequential net(torch::nn::Linear(4, 4), torch::nn::BatchNorm1d(4));
    {
      at::NoGradGuard no_grad;
      for (auto& tensor : net->parameters()) tensor.fill_(group->rank() + 1);
      for (auto& tensor : net->buffers()) tensor.fill_(group->rank() + 1);
    }
    DistributedDataParallel ddp(net, {.process_group = group});
    for (const auto& tensor : net->parameters()) EXPECT_TRUE((tensor == 1).all().item<bool>());
    for (const auto& tensor : net->buffers()) EXPECT_TRUE((tensor == 1).all().item<bool>());
  });
}

TEST(DdpConstruction, NamesTheParameterThatDiffersAndBothSides) {
  const auto errors = errors_of_ranks(3, [](const Group& group) {
    Net net(group->rank() == 2 ? 32 : 64);
    DistributedDataParallel ddp(net, {.process_group = group});
  });
  for (const std::string& error : errors) {
    EXPECT_THAT(error, AllOf(HasSubstr("rank 0 has parameter \"first.weight\" of shape [64, 8]"),
                             HasSubstr("rank 2 has parameter \"first.weight\" of shape [32, 8]")));
  }
}

TEST(DdpConstruction, RefusesAModelWithoutGradients) {
  const auto errors = errors_of_ranks(1, [](const Group& group) {
    torch::nn::Linear net(2, 2);
    for (auto& parameter : net->parameters()) parameter.set_requires_grad(false);
    DistributedDataParallel ddp(net, {.process_group = group});
  });
  EXPECT_THAT(errors[0], HasSubstr("no parameter of this module requires a gradient"));
}

TEST(DdpConstruction, IgnoredParametersAreLeftAlone) {
  run_ranks(2, [](const Group& group) {
    torch::nn::Linear net(2, 2);
    {
      at::NoGradGuard no_grad;
      net->bias.fill_(group->rank());
    }
    DistributedDataParallel ddp(net, {.process_group = group, .parameters_to_ignore = {"bias"}});
    ddp(torch::full({1, 2}, group->rank() + 1.0)).sum().backward();
    EXPECT_EQ(net->bias[0].item<float>(), group->rank());
    EXPECT_TRUE((net->weight.grad() == 1.5).all().item<bool>());
    EXPECT_TRUE((net->bias.grad() == 1).all().item<bool>());
  });
}

TEST(DdpBuffers, AreRankZerosInEveryForward) {
  run_ranks(2, [](const Group& group) {
    torch::nn::Sequential net(torch::nn::BatchNorm1d(4), torch::nn::Linear(4, 1));
    DistributedDataParallel ddp(net, {.process_group = group});
    for (int step = 0; step < 3; ++step) ddp(torch::full({5, 4}, 1.0 + group->rank())).sum().backward();
    ddp(torch::zeros({5, 4}));  // the same input: the same statistics from here on
    ddp.verify_in_sync();
  });
}

TEST(DdpVerify, NamesTheParameterThatDiverged) {
  const auto errors = errors_of_ranks(3, [](const Group& group) {
    Net net(64);
    DistributedDataParallel ddp(net, {.process_group = group});
    ddp.verify_in_sync();
    at::NoGradGuard no_grad;
    if (group->rank() == 1) net->middle->bias[3] += 1;
    ddp.verify_in_sync();
  });
  for (const std::string& error : errors) EXPECT_THAT(error, HasSubstr("parameter \"middle.bias\" of rank 1 differs"));
}

// Uses `a` always and `b` only on request.
struct BranchyImpl : torch::nn::Module {
  BranchyImpl() {
    a = register_module("a", torch::nn::Linear(2, 2));
    b = register_module("b", torch::nn::Linear(2, 2));
  }
  at::Tensor forward(const at::Tensor& x, bool with_b) { return with_b ? a(x) + b(x) : a(x); }
  torch::nn::Linear a{nullptr}, b{nullptr};
};
TORCH_MODULE(Branchy);

TEST(DdpUnused, TheNextForwardNamesParametersWithoutGradient) {
  const auto errors = errors_of_ranks(2, [](const Group& group) {
    Branchy net;
    DistributedDataParallel ddp(net, {.process_group = group});
    const bool with_b = group->rank() == 0;
    ddp(torch::ones({1, 2}), with_b).sum().backward();
    ddp(torch::ones({1, 2}), with_b);
  });
  for (const std::string& error : errors) {  // rank 0 waits in vain, and gets the reason
    EXPECT_THAT(error, AllOf(HasSubstr("rank 1: 2 of 4 parameters got no gradient"),
                             HasSubstr("\"b.weight\", \"b.bias\""), HasSubstr("find_unused_parameters")));
  }
}

TEST(DdpUnused, AreFoundWhenAskedFor) {
  run_ranks(3, [](const Group& group) {
    Branchy net;
    DistributedDataParallel ddp(net, {.process_group = group, .find_unused_parameters = true});
    for (int step = 0; step < 3; ++step) {
      net->zero_grad();
      ddp(torch::ones({1, 2}), group->rank() == step).sum().backward();
      EXPECT_TRUE((net->a->weight.grad() == 1).all().item<bool>());
      EXPECT_TRUE(torch::allclose(net->b->weight.grad(), torch::full({2, 2}, 1.0 / 3))) << net->b->weight.grad();
    }
  });
}

TEST(DdpUnused, AccumulatedGradientsOfUnusedParametersAreNotLost) {
  for (const bool with_static_graph : {false, true}) {
    run_ranks(2, [&](const Group& group) {
      Branchy net;
      DistributedDataParallel ddp(
          net,
          {.process_group = group, .find_unused_parameters = !with_static_graph, .static_graph = with_static_graph});
      net->b->weight.mutable_grad() = torch::full({2, 2}, 1.0);  // of steps before, on every rank
      for (int step = 0; step < 2; ++step) ddp(torch::ones({1, 2}), group->rank() == 0).sum().backward();
      EXPECT_TRUE((net->b->weight.grad() == 2).all().item<bool>()) << net->b->weight.grad();
    });
  }
}

TEST(DdpUnused, AParameterThatNoRankUsedKeepsItsGradient) {
  run_ranks(2, [](const Group& group) {
    Branchy net;
    DistributedDataParallel ddp(net, {.process_group = group, .find_unused_parameters = true});
    ddp(torch::ones({1, 2}), false).sum().backward();
    EXPECT_FALSE(net->b->weight.grad().defined());
    EXPECT_EQ(ddp.logging_data().unused_parameters, 2);
  });
}

TEST(DdpUnused, StaticGraphLearnsThemFromTheFirstStep) {
  run_ranks(2, [](const Group& group) {
    Branchy net;
    DistributedDataParallel ddp(net, {.process_group = group, .static_graph = true});
    for (int step = 0; step < 3; ++step) {
      net->zero_grad();
      ddp(torch::ones({1, 2}), group->rank() == 1).sum().backward();  // b on one rank only, always
      EXPECT_TRUE((net->a->weight.grad() == 1).all().item<bool>());
      EXPECT_TRUE((net->b->weight.grad() == 0.5).all().item<bool>()) << net->b->weight.grad();
    }
    EXPECT_EQ(ddp.logging_data().steps, 3);
  });
}

// A checkpointed segment: runs forward without a graph, and again, with one, inside of backward.
struct Checkpoint : torch::autograd::Function<Checkpoint> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x, torch::nn::Linear layer) {
    context->saved_data["layer"] = reinterpret_cast<std::int64_t>(layer.get());
    context->save_for_backward({x});
    return layer(x);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradient) {
    auto* layer = reinterpret_cast<torch::nn::LinearImpl*>(context->saved_data["layer"].toInt());
    at::AutoGradMode with_gradients(true);
    at::Tensor x = context->get_saved_variables()[0].detach().requires_grad_(true);
    layer->forward(x).backward(gradient[0]);
    return {x.grad(), at::Tensor()};
  }
};

struct CheckpointedImpl : torch::nn::Module {
  explicit CheckpointedImpl(int times_) : times(times_) {
    layer = register_module("layer", torch::nn::Linear(2, 2));
    head = register_module("head", torch::nn::Linear(2, 2));
  }
  at::Tensor forward(at::Tensor x) {
    x = x.clone().requires_grad_(true);
    for (int i = 0; i < times; ++i) x = Checkpoint::apply(x, layer);
    return head(x);
  }
  int times;
  torch::nn::Linear layer{nullptr}, head{nullptr};
};
TORCH_MODULE(Checkpointed);

TEST(DdpCheckpointing, OneSegmentWorks) {
  run_ranks(2, [](const Group& group) {
    Checkpointed net(1);
    DistributedDataParallel ddp(net, {.process_group = group});
    for (int step = 0; step < 2; ++step) {
      net->zero_grad();
      ddp(torch::full({1, 2}, 1.0 + group->rank())).sum().backward();
      at::Tensor sum = net->layer->weight.grad().clone();
      group->all_reduce(sum, {.op = ReduceOp::avg}).wait();
      EXPECT_TRUE(torch::equal(sum, net->layer->weight.grad()));
    }
  });
}

TEST(DdpCheckpointing, AParameterInTwoSegmentsIsAnErrorThatSuggestsStaticGraph) {
  const auto errors = errors_of_ranks(2, [](const Group& group) {
    Checkpointed net(2);
    DistributedDataParallel ddp(net, {.process_group = group});
    ddp(torch::ones({1, 2})).sum().backward();
    ddp(torch::ones({1, 2}));
  });
  for (const std::string& error : errors) EXPECT_THAT(error, HasSubstr("re-entrant (checkpointed) segments, set"));

  run_ranks(2, [](const Group& group) {
    Checkpointed net(2);
    DistributedDataParallel ddp(net, {.process_group = group, .static_graph = true});
    for (int step = 0; step < 3; ++step) {
      net->zero_grad();
      ddp(torch::full({1, 2}, 1.0 + group->rank())).sum().backward();
      at::Tensor mine = net->layer->weight.grad().clone();
      group->broadcast(mine, 0, {}).wait();
      EXPECT_TRUE(torch::equal(mine, net->layer->weight.grad()));
      EXPECT_GT(net->layer->weight.grad().abs().sum().item<float>(), 0);
    }
  });
}

TEST(DdpBackward, ASecondOneOverTheSameGraphAccumulatesTheAverage) {
  run_ranks(2, [](const Group& group) {
    torch::nn::Linear net(2, 1);
    DistributedDataParallel ddp(net, {.process_group = group});
    const at::Tensor loss = ddp(torch::full({1, 2}, 1.0 + 2 * group->rank())).sum();
    loss.backward({}, /*retain_graph=*/true);
    EXPECT_TRUE((net->weight.grad() == 2).all().item<bool>());
    loss.backward();
    EXPECT_TRUE((net->weight.grad() == 4).all().item<bool>());
  });
}

TEST(DdpBackward, ForwardsWithoutBackwardDoNoHarm) {
  run_ranks(2, [](const Group& group) {
    torch::nn::Linear net(2, 1);
    DistributedDataParallel ddp(net, {.process_group = group});
    ddp(torch::ones({1, 2}));
    {
      at::NoGradGuard no_grad;
      if (group->rank() == 0) ddp(torch::ones({1, 2}));  // evaluation on one rank only
    }
    ddp(torch::full({1, 2}, 1.0 + group->rank())).sum().backward();
    EXPECT_TRUE((net->weight.grad() == 1.5).all().item<bool>());
  });
}

// The exception of a hook on the first layer's weight comes while gradients are still missing, that of a hook on the
// input when all have arrived and are in flight.
TEST(DdpBackward, AnExceptionInBackwardIsExplainedAtTheNextForward) {
  for (const bool at_the_end : {false, true}) {
    const auto errors = errors_of_ranks(2, [&](const Group& group) {
      torch::nn::Sequential net(torch::nn::Linear(2, 2), torch::nn::Linear(2, 2));
      DistributedDataParallel ddp(net, {.process_group = group});
      at::Tensor x = torch::ones({1, 2}).requires_grad_(true);
      const auto fail = [](const at::Tensor&) { throw std::runtime_error("the program's own"); };
      (at_the_end ? x : net->parameters()[0]).register_hook(fail);
      EXPECT_THROW(ddp(x).sum().backward(), std::runtime_error);
      ddp(x.detach());
    });
    for (const std::string& error : errors)
      EXPECT_THAT(error, HasSubstr("the last backward() ended with an exception"));
  }
}

TEST(DdpBackward, OperationsMayEndAfterTheReplicaThatIssuedThem) {
  for (int round = 0; round < 20; ++round) {
    const auto errors = errors_of_ranks(2, [](const Group& group) {
      Net net = net_with_seed(1);
      DistributedDataParallel ddp(net, {.process_group = group});
      const at::Tensor loss = loss_of(ddp(inputs(4)), targets(4));
      net->first->weight.register_hook([](const at::Tensor&) { throw std::runtime_error("the program's own"); });
      loss.backward();  // fails with buckets in flight
    });
    for (const std::string& error : errors) EXPECT_THAT(error, HasSubstr("the program's own"));
  }
}

TEST(DdpBackward, RefusesCreateGraphAndSparseGradients) {
  auto errors = errors_of_ranks(2, [](const Group& group) {
    torch::nn::Linear net(2, 1);
    // Gradients with a graph refer to their parameters, which own them: without this they would never be freed.
    const std::shared_ptr<void> detached_at_the_end(nullptr, [&net](void*) { net->zero_grad(); });
    DistributedDataParallel ddp(net, {.process_group = group});
    ddp(torch::ones({1, 2})).pow(2).sum().backward({}, true, /*create_graph=*/true);
  });
  for (const std::string& error : errors) EXPECT_THAT(error, HasSubstr("create_graph"));
  errors = errors_of_ranks(2, [](const Group& group) {
    torch::nn::Embedding net(torch::nn::EmbeddingOptions(4, 2).sparse(true));
    DistributedDataParallel ddp(net, {.process_group = group});
    ddp(torch::ones({1}, torch::kLong)).sum().backward();
  });
  for (const std::string& error : errors) EXPECT_THAT(error, AllOf(HasSubstr("weight"), HasSubstr("sparse")));
}

TEST(DdpBackward, AGradientPenaltyWorks) {
  run_ranks(2, [](const Group& group) {
    torch::nn::Linear net(2, 1);
    DistributedDataParallel ddp(net, {.process_group = group});
    at::Tensor x = torch::full({1, 2}, 1.0 + group->rank()).requires_grad_(true);
    const at::Tensor output = ddp(x).pow(2).sum();
    const auto inner = torch::autograd::grad({output}, {x}, {}, true, /*create_graph=*/true);
    (output + inner[0].pow(2).sum()).backward();
    at::Tensor mine = net->weight.grad().clone();
    group->broadcast(mine, 0, {}).wait();
    EXPECT_TRUE(torch::equal(mine, net->weight.grad()));
  });
}

}  // namespace
}  // namespace lockstep
