// Programs that autograd accepts and that are unusual: what they change in place, keep, wrap twice or do on one rank
// only. Each trains as by hand, or is an error that says what to do.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "ddp/testing/test_models.h"
#include "lockstep/ddp/collectives.h"
#include "lockstep/ddp/distributed_data_parallel.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using namespace testing;  // ranks

at::Tensor rank_batch(const Group& group, double factor = 1) {
  return torch::full({1, 4}, factor * (1.0 + group->rank()));
}

bool is_everywhere(const at::Tensor& tensor, double value) {
  return tensor.defined() && torch::allclose(tensor, torch::full_like(tensor, value));
}

void clear_gradients(const std::vector<at::Tensor>& parameters) {
  for (const at::Tensor& parameter : parameters) parameter.mutable_grad() = at::Tensor();
}

// ---- outputs

struct ViewImpl : torch::nn::Module {
  ViewImpl() { linear = register_module("linear", torch::nn::Linear(4, 6)); }
  at::Tensor forward(const at::Tensor& x) { return linear(x).view({-1, 2, 3}); }
  torch::nn::Linear linear{nullptr};
};
TORCH_MODULE(View);

// Autograd then replaces the view's own node, so that backward does not come through it.
TEST(DdpOutputs, ThatAreViewsMayBeChangedInPlace) {
  run_ranks(2, [](const Group& group) {
    for (const DdpOptions& options : {DdpOptions{.process_group = group},
                                      {.process_group = group, .find_unused_parameters = true},
                                      {.process_group = group, .static_graph = true},
                                      {.process_group = group, .sample_weighted = true}}) {
      View net;
      DistributedDataParallel ddp(net, options);
      for (int step = 0; step < 3; ++step) {
        clear_gradients(net->parameters());
        at::Tensor output = ddp(rank_batch(group));
        output.mul_(2);
        output.sum().backward();
        EXPECT_TRUE(is_everywhere(net->linear->weight.grad(), 3)) << net->linear->weight.grad();
        clear_gradients(net->parameters());
        output = ddp(rank_batch(group));
        output.select(1, 0).mul_(3);
        output.select(1, 0).sum().backward();
        EXPECT_TRUE(is_everywhere(net->linear->weight.grad()[0], 4.5)) << net->linear->weight.grad();
      }
    }
  });
}

// A prediction that rank 0 keeps for its log, with its graph, must not change what rank 0 communicates.
TEST(DdpOutputs, MayBeKeptOnOneRank) {
  run_ranks(2, [](const Group& group) {
    torch::nn::Sequential net(torch::nn::Linear(4, 3), torch::nn::BatchNorm1d(3));
    DistributedDataParallel ddp(net, {.process_group = group});
    const at::Tensor input = torch::randn({5, 4});
    input.select(0, 0).add_(3 * group->rank());  // batch normalisation would remove the same shift of all samples
    std::vector<at::Tensor> kept;
    at::Tensor output = ddp(input);
    if (group->rank() == 0) kept.push_back(output);
    output = at::Tensor();
    for (int step = 0; step < 2; ++step) {
      clear_gradients(net->parameters());
      {
        const auto guard = ddp.no_sync();
        ddp(input).pow(3).sum().backward();
      }
      const at::Tensor local = net->parameters()[0].grad().clone();
      all_reduce(local, {.op = ReduceOp::avg, .group = group});
      EXPECT_FALSE(torch::allclose(local, net->parameters()[0].grad())) << "no_sync() only accumulates";
      ddp(input).pow(3).sum().backward();
    }
    at::NoGradGuard no_grad;
    net->eval();
    ddp(input);
    ddp.verify_in_sync();
  });
}

TEST(DdpOutputs, AnInnerDerivativeOnOneRankDoesNotEndNoSync) {
  run_ranks(2, [](const Group& group) {
    torch::nn::Linear net(4, 1);
    DistributedDataParallel ddp(net, {.process_group = group});
    if (group->rank() == 0) {
      const at::Tensor input = rank_batch(group).requires_grad_();
      torch::autograd::grad({ddp(input).sum()}, {input});
    }
    {
      const auto guard = ddp.no_sync();
      ddp(rank_batch(group)).sum().backward();
    }
    EXPECT_TRUE(is_everywhere(net->weight.grad(), 1.0 + group->rank()));
    ddp(rank_batch(group)).sum().backward();
    EXPECT_TRUE(is_everywhere(net->weight.grad(), 3));
  });
}

// The penalty's graph does not go through the output, and the last bias has no part in it.
TEST(DdpOutputs, AreNotReachedByAGradientPenaltyAlone) {
  run_ranks(2, [](const Group& group) {
    torch::manual_seed(1);
    torch::nn::Sequential net(torch::nn::Linear(4, 8), torch::nn::Tanh(), torch::nn::Linear(8, 1));
    DistributedDataParallel ddp(net, {.process_group = group, .find_unused_parameters = true});
    const auto penalty = [&](const auto& forward) {
      const at::Tensor input = rank_batch(group).requires_grad_();
      return torch::autograd::grad({forward(input).sum()}, {input}, {}, true, true)[0].pow(2).sum();
    };
    for (int step = 0; step < 2; ++step) {
      clear_gradients(net->parameters());
      {
        const auto guard = ddp.no_sync();
        penalty([&](const at::Tensor& x) { return net->forward(x); }).backward();
      }
      at::Tensor expected = net->parameters()[0].grad().clone();
      all_reduce(expected, {.op = ReduceOp::avg, .group = group});
      clear_gradients(net->parameters());
      penalty([&](const at::Tensor& x) { return ddp(x); }).backward();
      EXPECT_TRUE(torch::allclose(net->parameters()[0].grad(), expected));
      EXPECT_FALSE(net->parameters()[3].grad().defined());
    }
  });
}

// ---- no_sync

TEST(DdpNoSync, GuardsMayEndInAnyOrder) {
  run_ranks(2, [](const Group& group) {
    torch::nn::Linear net(4, 1);
    DistributedDataParallel ddp(net, {.process_group = group});
    std::unique_ptr<GradientSynchronizer::NoSync> guard;
    for (int micro = 0; micro < 3; ++micro) {
      // The new guard begins before the old one ends.
      guard = std::make_unique<GradientSynchronizer::NoSync>(ddp.synchronizer());
      ddp(rank_batch(group)).sum().backward();
      EXPECT_TRUE(is_everywhere(net->weight.grad(), (micro + 1.0) * (group->rank() + 1)));
    }
    guard.reset();
    ddp(rank_batch(group)).sum().backward();
    EXPECT_TRUE(is_everywhere(net->weight.grad(), 6));
  });
}

// ---- several wrappers

struct HeadImpl : torch::nn::Module {
  explicit HeadImpl(const torch::nn::Linear& shared) {
    body = register_module("body", shared);
    head = register_module("head", torch::nn::Linear(600, 1));
  }
  at::Tensor forward(const at::Tensor& x) { return head(torch::tanh(body(x))); }
  torch::nn::Linear body{nullptr}, head{nullptr};
};
TORCH_MODULE(Head);

// Both would reduce the same gradient, one of them while the other does it in place.
TEST(DdpWrappers, AParameterInTwoOfThemIsAnErrorThatNamesIt) {
  for (const std::string& error : errors_of_ranks(2, [](const Group& group) {
         torch::nn::Linear body(600, 600);
         Head actor(body), critic(body);
         DistributedDataParallel first(actor, {.process_group = group}), second(critic, {.process_group = group});
         const at::Tensor input = torch::full({1, 600}, 1.0 + group->rank());
         (first(input).sum() + second(input).sum()).backward();
       })) {
    EXPECT_THAT(error, AllOf(HasSubstr("\"body.weight\""), HasSubstr("another DistributedDataParallel")));
  }
}

TEST(DdpWrappers, OneMayFollowAnother) {
  run_ranks(2, [](const Group& group) {
    torch::nn::Linear net(4, 1);
    auto ddp = std::make_unique<DistributedDataParallel<torch::nn::Linear>>(net, DdpOptions{.process_group = group});
    for (int round = 0; round < 2; ++round) {
      clear_gradients(net->parameters());
      (*ddp)(rank_batch(group)).sum().backward();
      EXPECT_TRUE(is_everywhere(net->weight.grad(), 1.5));
      ddp = std::make_unique<DistributedDataParallel<torch::nn::Linear>>(net, DdpOptions{.process_group = group});
    }
  });
}

struct TwoHeadsImpl : torch::nn::Module {
  TwoHeadsImpl() {
    a = register_module("a", torch::nn::Linear(4, 1));
    b = register_module("b", torch::nn::Linear(4, 1));
  }
  std::pair<at::Tensor, at::Tensor> forward(const at::Tensor& x) { return {a(x), b(x)}; }
  torch::nn::Linear a{nullptr}, b{nullptr};
};
TORCH_MODULE(TwoHeads);

// Two models of one shape in one loss, which on rank 0 does not use everything: rank 0 launches the first model's
// buckets before the second one's, rank 1 the other way round.
void train_twins(const Group& first_group, const Group& second_group) {
  TwoHeads first, second;
  DistributedDataParallel first_ddp(first, {.process_group = first_group, .find_unused_parameters = true});
  DistributedDataParallel second_ddp(second, {.process_group = second_group, .find_unused_parameters = true});
  for (int step = 0; step < 2; ++step) {
    clear_gradients(first->parameters());
    clear_gradients(second->parameters());
    const auto [a1, b1] = first_ddp(rank_batch(first_group));
    const auto [a2, b2] = second_ddp(rank_batch(first_group, 10));
    (a1.sum() + b1.sum() + a2.sum() + (first_group->rank() == 0 ? at::zeros({}) : b2.sum())).backward();
    EXPECT_TRUE(is_everywhere(first->a->weight.grad(), 1.5)) << first->a->weight.grad();
    EXPECT_TRUE(is_everywhere(second->a->weight.grad(), 15)) << second->a->weight.grad();
    EXPECT_TRUE(is_everywhere(second->b->weight.grad(), 10)) << second->b->weight.grad();
  }
}

TEST(DdpWrappers, TwoModelsInOneLossMayBeReachedInAnyOrderOnTheirOwnGroups) {
  run_ranks(2, [](const Group& group) {
    const std::vector<int> ranks = {0, 1};
    train_twins(group, group->new_group(ranks, "second model"));
  });
}

// At the end of the first backward, each model exchanges the order of its buckets.
TEST(DdpWrappers, ModelsOfOneLossAreFinishedInOneOrder) {
  run_ranks(2, [](const Group& group) {
    const std::vector<int> ranks = {0, 1};
    torch::nn::Linear first(4, 3), second(4, 3);
    DistributedDataParallel a(first, {.process_group = group});
    DistributedDataParallel b(second, {.process_group = group->new_group(ranks, "second model")});
    for (int step = 0; step < 3; ++step) {
      clear_gradients(first->parameters());
      clear_gradients(second->parameters());
      at::Tensor loss = a(rank_batch(group)).sum();
      loss = loss + b(rank_batch(group)).sum();
      const at::Tensor last = a(rank_batch(group)).sum();
      // Backward begins at what was computed last.
      (group->rank() == 0 ? loss + last : loss).backward();
      EXPECT_TRUE(is_everywhere(second->weight.grad(), 1.5)) << second->weight.grad();
    }
  });
}

TEST(DdpWrappers, TwoModelsOnOneGroupThatAreReachedInDifferentOrdersAreAnError) {
  if (test_backend() != "lockstep")
    GTEST_SKIP() << "only Lockstep's engine notices that ranks call different operations";
  for (const std::string& error : errors_of_ranks(2, [](const Group& group) { train_twins(group, group); })) {
    EXPECT_THAT(error, AllOf(HasSubstr("label"), HasSubstr("new_group")));
  }
}

// ---- changes of layout

TEST(DdpLayouts, MayChangeOnOneRank) {
  run_ranks(2, [](const Group& group) {
    torch::nn::Conv2d net(torch::nn::Conv2dOptions(192, 192, 3));  // more than 1 MiB
    DistributedDataParallel ddp(net, {.process_group = group});
    if (group->rank() == 1) net->weight.set_data(net->weight.detach().contiguous(at::MemoryFormat::ChannelsLast));
    at::Generator generator = at::detail::createCPUGenerator(static_cast<std::uint64_t>(group->rank()));
    const at::Tensor input = at::randn({1, 192, 4, 4}, generator);
    {
      const auto guard = ddp.no_sync();
      net(input).pow(2).sum().backward();
    }
    const at::Tensor expected = net->weight.grad().contiguous().clone();
    all_reduce(expected, {.op = ReduceOp::avg, .group = group});
    for (int step = 0; step < 3; ++step) {  // buckets are rebuilt after the first one
      clear_gradients(net->parameters());
      ddp(input).pow(2).sum().backward();
      EXPECT_TRUE(torch::allclose(net->weight.grad(), expected, 1e-4, 1e-4));
    }
  });
}

// ---- exceptions

// The group has averaged, but this rank has not taken the result over: its replica would drift.
TEST(DdpExceptions, InAContinuationOfOneRankEndTheGroup) {
  for (const bool static_graph : {false, true}) {
    std::array<std::string, 2> reasons;
    errors_of_ranks(2, [&](const Group& group) {
      torch::nn::Linear net(4, 1);
      DistributedDataParallel ddp(net, {.process_group = group, .static_graph = static_graph});
      int runs = 0;
      ddp.register_comm_hook(make_comm_hook("fails", [&](const GradBucket& bucket, ProcessGroup& all) {
        return HookFuture({all.all_reduce(bucket.buffer(), {.op = ReduceOp::avg})}, [&]() -> HookFuture {
          if (++runs == 2 && group->rank() == 1) throw std::runtime_error("no memory left");
          return {};
        });
      }));
      try {
        for (int step = 0; step < 4; ++step) {
          try {
            ddp(rank_batch(group)).sum().backward();
          } catch (const Error&) {
            throw;
          } catch (const std::runtime_error&) {  // the program's own
          }
        }
      } catch (const Error& error) {
        reasons[static_cast<std::size_t>(group->rank())] = error.what();
        throw;
      }
    });
    for (int rank = 0; rank < 2; ++rank) {
      EXPECT_THAT(shared(reasons[static_cast<std::size_t>(rank)], rank), HasSubstr("no memory left"));
    }
  }
}

TEST(DdpExceptions, OfAHookInTheFirstPassOfAStaticGraphAreTheReason) {
  const auto errors = errors_of_ranks(2, [](const Group& group) {
    torch::nn::Linear net(4, 1);
    DistributedDataParallel ddp(net, {.process_group = group, .static_graph = true});
    ddp.register_comm_hook(make_comm_hook("fails", [&](const GradBucket& bucket, ProcessGroup& all) -> HookFuture {
      if (group->rank() == 1) throw std::runtime_error("no memory left");
      return all.all_reduce(bucket.buffer(), {.op = ReduceOp::avg});
    }));
    try {
      ddp(rank_batch(group)).sum().backward();
    } catch (const std::exception&) {
      if (group->rank() == 0) throw;
    }
    ddp(rank_batch(group));
  });
  for (const std::string& error : errors) {
    EXPECT_THAT(error, AllOf(HasSubstr("no memory left"), Not(HasSubstr("the graph has changed"))));
  }
}

// ---- gradients that do not arrive

struct WithoutGradient : torch::autograd::Function<WithoutGradient> {
  static at::Tensor forward(torch::autograd::AutogradContext*, const at::Tensor& x, const at::Tensor&) { return x * 1; }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                 const torch::autograd::variable_list& gradients) {
    return {gradients[0], at::Tensor()};
  }
};

TEST(DdpGradients, ThatACustomFunctionLeavesUndefinedAreNotBlamedOnAHook) {
  struct Net : torch::nn::Module {
    Net() { linear = register_module("linear", torch::nn::Linear(4, 1)); }
    at::Tensor forward(const at::Tensor& x) {
      return WithoutGradient::apply(torch::mv(x, linear->weight[0]), linear->bias);
    }
    torch::nn::Linear linear{nullptr};
  };
  for (const std::string& error : errors_of_ranks(2, [](const Group& group) {
         DistributedDataParallel ddp(std::make_shared<Net>(), {.process_group = group});
         ddp(rank_batch(group)).sum().backward();
       })) {
    EXPECT_THAT(error,
                AllOf(HasSubstr("\"linear.bias\""), HasSubstr("find_unused_parameters"), Not(HasSubstr("hook"))));
  }
}

// ---- buffers

struct BufferedImpl : torch::nn::Module {
  explicit BufferedImpl(at::Tensor value) {
    linear = register_module("linear", torch::nn::Linear(4, 1));
    buffer = register_buffer("buffer", std::move(value));
  }
  at::Tensor forward(const at::Tensor& x) { return linear(x); }
  torch::nn::Linear linear{nullptr};
  at::Tensor buffer;
};
TORCH_MODULE(Buffered);

// They are sent as bytes, so the group need not be able to reduce them.
TEST(DdpBuffers, OfEveryTypeAndWithRepeatedElementsAreRankZeros) {
  run_ranks(2, [](const Group& group) {
    const auto value = [&](at::ScalarType type) { return at::full({3}, 1 + group->rank(), type); };
    for (const at::Tensor& buffer :
         {value(at::kComplexFloat), value(at::kComplexDouble), value(at::kShort), value(at::kBool),
          value(at::kFloat).expand({4, 3}), value(at::kLong).unsqueeze(1).expand({3, 5})}) {
      Buffered net(buffer);
      DistributedDataParallel ddp(net, {.process_group = group});
      EXPECT_TRUE((net->buffer == 1).all().item<bool>()) << net->buffer;
      for (int step = 0; step < 2; ++step) {
        if (group->rank() == 1) buffer.as_strided({1}, {1}).fill_(0);
        ddp(rank_batch(group)).sum().backward();
        EXPECT_TRUE((net->buffer == 1).all().item<bool>()) << net->buffer;
      }
    }
  });
}

TEST(DdpBuffers, ThatAreSparseAreRefusedByName) {
  for (const std::string& error : errors_of_ranks(2, [](const Group& group) {
         DistributedDataParallel ddp(Buffered(at::eye(3).to_sparse()), {.process_group = group});
       })) {
    EXPECT_THAT(error, AllOf(HasSubstr("\"buffer\""), HasSubstr("sparse")));
  }
}

TEST(DdpBuffers, MayFirstBeSentInInferenceMode) {
  run_ranks(2, [](const Group& group) {
    torch::nn::Sequential net(torch::nn::Linear(4, 3), torch::nn::BatchNorm1d(3));
    DistributedDataParallel ddp(net, {.process_group = group});
    {
      const c10::InferenceMode inference;
      ddp.sync_buffers();
    }
    for (int step = 0; step < 2; ++step) {
      ddp(torch::randn({5, 4})).sum().backward();
      const c10::InferenceMode inference;
      ddp(torch::randn({5, 4}));
    }
  });
}

// ---- join

TEST(DdpJoin, TwoForwardsBeforeABackwardAreRefusedOnceARankHasLeft) {
  for (const std::string& error : errors_of_ranks(2, [](const Group& group) {
         torch::nn::Linear net(4, 1);
         DistributedDataParallel ddp(net, {.process_group = group});
         ddp.join([&] {
           for (int step = 0; step < 1 + group->rank(); ++step) {
             (ddp(rank_batch(group)).sum() + ddp(rank_batch(group)).sum()).backward();
           }
         });
       })) {
    EXPECT_THAT(error, HasSubstr("one forward for each backward"));
  }
}

}  // namespace
}  // namespace lockstep
