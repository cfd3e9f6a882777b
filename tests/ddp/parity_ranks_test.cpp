// PyTorch's tests of uneven inputs, buffers, sync batch norm and of what DDP is used with: pytorch_parity.md has the
// list.
#include <barrier>
#include <chrono>

#include "ddp/parity.h"
#include "lockstep/ddp/collectives.h"
#include "lockstep/ddp/model_averaging.h"
#include "lockstep/ddp/sync_batch_norm.h"
#include "lockstep/ddp/zero_redundancy_optimizer.h"

namespace lockstep::testing {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;
using torch::nn::Linear;

// Gradients do not depend on the weights, so that only the number of steps counts.
TEST(ParityJoin, TrainsAsOneProcessThatTakesAllSteps) {
  const double rate = 0.03;
  auto alone = with_known_parameters(without_bias(10, 10));
  torch::optim::SGD alone_optimizer(alone->parameters(), rate);
  for (int step = 0; step < 2 + 4 + 6; ++step) {
    alone_optimizer.zero_grad();
    alone->forward(batch(0, {3, 10})).sum().backward();
    alone_optimizer.step();
  }
  run_ranks(3, [&](const Group& group) {
    auto net = with_known_parameters(without_bias(10, 10));
    DistributedDataParallel ddp(net, {.process_group = group});
    torch::optim::SGD optimizer(net->parameters(), rate * group->size());
    ddp.join([&] {
      for (int step = 0; step < 2 * (group->rank() + 1); ++step) {
        optimizer.zero_grad();
        ddp.forward(batch(0, {3, 10})).sum().backward();
        optimizer.step();
      }
    });
    EXPECT_TRUE(at::allclose(net->weight, alone->weight, 1e-4, 1e-5));
  });
}

// A model with or without batch norm, whose first task one rank may leave out.
struct UnevenImpl : torch::nn::Module {
  UnevenImpl(bool with_norm, int skipping_rank_) : skipping_rank(skipping_rank_) {
    if (with_norm) norm = register_module("norm", torch::nn::BatchNorm1d(8));
    one = register_module("one", without_bias(8, 8));
    two = register_module("two", Linear(8, 8));
  }
  at::Tensor forward(at::Tensor x, int rank) {
    if (!norm.is_empty()) x = norm(x);
    return two(rank == skipping_rank ? x : one(x));
  }
  int skipping_rank;
  torch::nn::BatchNorm1d norm{nullptr};
  Linear one{nullptr}, two{nullptr};
};
TORCH_MODULE(Uneven);

struct UnevenCase {
  const char* name;
  bool with_norm = false;
  int skipping_rank = -1;
  std::function<std::shared_ptr<CommHook>()> hook = nullptr;
  bool static_graph = false;
};

// Some ranks take `few` steps (the second of them one more), the others `few + more`; every `interval`-th synchronises.
void expect_join(const UnevenCase& c, int early, int few, int more, int interval) {
  run_ranks(3, [&](const Group& group) {
    Uneven net = with_known_parameters(Uneven(c.with_norm, c.skipping_rank));
    DistributedDataParallel ddp(net, {.process_group = group,
                                      .bucket_cap_mb = 0.0001,
                                      .find_unused_parameters = c.skipping_rank >= 0 && !c.static_graph,
                                      .static_graph = c.static_graph});
    if (c.hook) ddp.register_comm_hook(c.hook());
    const int steps = group->rank() < early ? few + group->rank() : few + more;
    int taken = 0;
    ddp.join([&] {
      for (; taken < steps; ++taken) {
        const auto pass = [&] { ddp.forward(batch(group->rank(), {4, 8}, taken), group->rank()).sum().backward(); };
        if (taken % interval != 0) {
          const auto guard = ddp.no_sync();
          pass();
        } else {
          pass();
        }
        at::NoGradGuard no_grad;
        for (at::Tensor parameter : net->parameters()) {
          if (!parameter.grad().defined()) continue;
          parameter.sub_(parameter.grad(), 0.01);
          parameter.mutable_grad().zero_();
        }
      }
    });
    EXPECT_EQ(taken, steps);
    ddp.verify_in_sync();
    at::Tensor first = net->two->weight.detach().clone();
    group->broadcast(first, 0, {}).wait();
    EXPECT_TRUE(at::equal(first, net->two->weight.detach()));
  });
}

TEST(ParityJoin, UnevenInputsWithEveryKindOfModelAndHook) {
  const std::vector<UnevenCase> cases = {
      {.name = "batch norm", .with_norm = true},
      {.name = "plain"},
      {.name = "unused on a rank that ends late", .skipping_rank = 2},
      {.name = "unused on a rank that ends early", .skipping_rank = 0},
      {.name = "hook", .hook = [] { return all_reduce_hook(); }},
      {.name = "power sgd",
       .hook = [] { return power_sgd_hook({.start_iteration = 1, .use_error_feedback = false, .warm_start = false}); }},
  };
  for (const UnevenCase& c : cases) {
    for (const int early : {1, 2}) {
      for (const int few : {0, 3}) {
        for (const int interval : {1, 2, 3}) {
          SCOPED_TRACE(std::string(c.name) + ", early " + std::to_string(early) + ", few " + std::to_string(few) +
                       ", interval " + std::to_string(interval));
          expect_join(c, early, few, 3, interval);
          if (::testing::Test::HasFailure()) return;
        }
      }
    }
  }
}

// The rank that has ended shadows DDP's collectives, not the optimizer's.
TEST(ParityJoin, AShardedOptimizerInsideJoinIsAMismatchThatNamesBothSides) {
  const auto errors = errors_of_ranks(2, [](const Group& group) {
    auto net = with_known_parameters(Linear(8, 8));
    DistributedDataParallel ddp(net, {.process_group = group});
    ZeroRedundancyOptimizer<torch::optim::SGD> optimizer(net->parameters(), 0.1, {.group = group});
    ddp.join([&] {
      for (int step = 0; step <= group->rank(); ++step) {
        ddp.forward(batch(group->rank(), {4, 8}, step)).sum().backward();
        optimizer.step();
      }
    });
  });
  for (const std::string& error : errors) EXPECT_THAT(error, AllOf(HasSubstr("all_gather"), HasSubstr("broadcast")));
}

struct ThrowingImpl : torch::nn::Module {
  ThrowingImpl() { weight = register_parameter("weight", at::ones({1})); }
  at::Tensor forward(const at::Tensor&) { throw std::invalid_argument("intentional"); }
  at::Tensor weight;
};
TORCH_MODULE(Throwing);

TEST(ParityJoin, AnExceptionInForwardIsThrownOnItsRank) {
  const auto errors = errors_of_ranks(2, [](const Group& group) {
    Throwing net;
    DistributedDataParallel ddp(net, {.process_group = group});
    ddp.join([&] { ddp.forward(at::ones({1})).sum().backward(); });
  });
  for (const std::string& error : errors) EXPECT_EQ(error, "intentional");
}

TEST(ParityIgnored, TensorsMayDifferBetweenRanksInShapeAndAreNotTouched) {
  for (const bool find_unused : kBoth) {
    for (const bool buffers : kBoth) {
      for (const bool static_graph : kBoth) {
        run_ranks(2, [&](const Group& group) {
          torch::nn::Sequential net(without_bias(1, 1), without_bias(1, 3 + group->rank()));
          net[1]->register_buffer("own", at::full({5 + group->rank()}, double(group->rank())));
          DistributedDataParallel ddp(net, {.process_group = group,
                                            .broadcast_buffers = buffers,
                                            .find_unused_parameters = find_unused,
                                            .static_graph = static_graph,
                                            .parameters_to_ignore = {"1.weight", "1.own"}});
          const at::Tensor weight = net->named_parameters()["0.weight"], ignored = net->named_parameters()["1.weight"];
          for (int step = 0; step < 6; ++step) {
            drop_gradients(net->parameters());
            const at::Tensor x = at::full({1, 1}, group->rank() + 1.0);
            // What the same model gives alone.
            const auto local =
                torch::autograd::grad({torch::linear(torch::linear(x, weight), ignored).sum()}, {weight, ignored});
            at::Tensor average = local[0].clone();
            group->all_reduce(average, {.op = ReduceOp::avg}).wait();
            ddp.forward(x).sum().backward();
            EXPECT_TRUE(at::equal(ignored.grad(), local[1]));
            EXPECT_TRUE(at::allclose(weight.grad(), average));
          }
          EXPECT_TRUE((net->named_buffers()["1.own"] == group->rank()).all().item<bool>());
        });
      }
    }
  }
}

struct ManyBuffersImpl : torch::nn::Module {
  explicit ManyBuffersImpl(const std::vector<at::ScalarType>& types) {
    layer = register_module("layer", Linear(2, 2));
    for (const at::ScalarType type : types) {
      buffers_of_types.push_back(register_buffer(c10::toString(type), at::zeros({3}, type)));
    }
    strided = register_buffer("strided", at::zeros({4, 3}).t());
    empty = register_buffer("empty", at::zeros({0}));
  }
  at::Tensor forward(const at::Tensor& x) { return layer(x); }
  Linear layer{nullptr};
  Tensors buffers_of_types;
  at::Tensor strided, empty;
};
TORCH_MODULE(ManyBuffers);

TEST(ParityBuffers, OfEveryTypeAreRankZerosAfterEveryForward) {
  run_ranks(2, [](const Group& group) {
    ManyBuffers net(std::vector<at::ScalarType>{at::kBool, at::kByte, at::kChar, at::kInt, at::kLong, at::kHalf,
                                                at::kBFloat16, at::kFloat, at::kDouble});
    DistributedDataParallel ddp(net, {.process_group = group});
    for (int step = 0; step < 3; ++step) {
      if (group->rank() == 0) {  // only there, and in place
        for (at::Tensor& buffer : net->buffers_of_types)
          buffer.fill_(buffer.scalar_type() == at::kBool ? step % 2 : step + 1);
        net->strided.copy_(at::arange(12).reshape({3, 4}) + step);
      }
      ddp.forward(batch(group->rank(), {2, 2})).sum().backward();
      for (const at::Tensor& buffer : net->buffers_of_types) {
        EXPECT_TRUE((buffer == (buffer.scalar_type() == at::kBool ? step % 2 : step + 1)).all().item<bool>()) << buffer;
      }
      EXPECT_TRUE(at::equal(net->strided, at::arange(12).reshape({3, 4}).to(at::kFloat) + step));
    }
  });
}

TEST(ParitySyncBatchNorm, InputsMayBeChannelsLast) {
  const auto make = [] { return torch::nn::BatchNorm2d(3); };
  const at::Tensor whole = at::cat({batch(0, {2, 3, 4, 5}), batch(1, {2, 3, 4, 5})}).requires_grad_();
  auto alone = make();
  const at::Tensor expected = alone(whole);
  (expected * batch(2, {4, 3, 4, 5})).sum().backward();
  for (const bool channels_last : kBoth) {
    run_ranks(2, [&](const Group& group) {
      const auto format = channels_last ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::Contiguous;
      SyncBatchNorm layer(torch::nn::BatchNormOptions(3), group);
      DistributedDataParallel ddp(layer, {.process_group = group});
      const at::Tensor x = share(whole.detach(), group).contiguous(format).requires_grad_();
      const at::Tensor output = ddp.forward(x);
      EXPECT_TRUE(output.is_contiguous(format));
      (output * share(batch(2, {4, 3, 4, 5}), group)).sum().backward();
      EXPECT_TRUE(at::allclose(output, share(expected, group), 1e-4, 1e-5));
      EXPECT_TRUE(at::allclose(x.grad(), share(whole.grad(), group), 1e-4, 1e-5));
      EXPECT_TRUE(at::allclose(layer->weight.grad() * 2, alone->weight.grad(), 1e-4, 1e-5));
    });
  }
}

TEST(ParitySyncBatchNorm, OneRanksBatchMayBeEmptyInDdp) {
  run_ranks(2, [](const Group& group) {
    torch::nn::Sequential net(torch::nn::Conv2d(torch::nn::Conv2dOptions(2, 2, 3)), torch::nn::BatchNorm2d(2),
                              Linear(6, 2));
    convert_sync_batchnorm(net, group);
    DistributedDataParallel ddp(net, {.process_group = group});
    for (const bool with_gradient : kBoth) {
      const at::Tensor x = batch(0, {group->rank() == 0 ? 0 : 3, 2, 8, 8}).requires_grad_(with_gradient);
      const at::Tensor y = ddp.forward(x);
      EXPECT_FALSE(y.isnan().any().item<bool>());
      y.sum().backward();
      for (const at::Tensor& parameter : net->parameters()) EXPECT_FALSE(parameter.grad().isnan().any().item<bool>());
    }
    ddp.verify_in_sync();
  });
}

TEST(ParitySyncBatchNorm, StatisticsAreThoseOfTheGroupItWasGiven) {
  run_ranks(4, [](const Group& world) {
    const bool low = world->rank() < 2;
    const Group half = world->new_group(low ? std::vector<int>{0, 1} : std::vector<int>{2, 3}, low ? "low" : "high");
    const auto outer = std::make_shared<torch::nn::Module>();
    torch::nn::BatchNorm1d norm = outer->register_module("inner", std::make_shared<torch::nn::Module>())
                                      ->register_module("norm", torch::nn::BatchNorm1d(3));
    EXPECT_EQ(convert_sync_batchnorm(*outer, half), 1);
    const int first = low ? 0 : 2;
    norm->forward(batch(world->rank(), {4, 3}));
    torch::nn::BatchNorm1d alone(3);
    alone(at::cat({batch(first, {4, 3}), batch(first + 1, {4, 3})}));
    EXPECT_TRUE(at::allclose(norm->running_mean, alone->running_mean, 1e-5, 1e-6));
    EXPECT_TRUE(at::allclose(norm->running_var, alone->running_var, 1e-5, 1e-6));
  });
}

// The ranks of `absent` do not call; all others get an error that names them.
void expect_named(int ranks, const std::vector<int>& absent, std::chrono::milliseconds timeout) {
  std::barrier<> all(ranks);
  run_ranks(ranks, [&](const Group& group) {
    for (int i = 0; i < 10; ++i) all_reduce(at::ones({10}), {.group = group});
    monitored_barrier(20s, group);
    if (std::find(absent.begin(), absent.end(), group->rank()) == absent.end()) {
      std::string error;
      try {
        monitored_barrier(timeout, group);
      } catch (const Error& thrown) {
        error = thrown.what();
      }
      for (int rank = 0; rank < ranks; ++rank) {
        const auto name = HasSubstr("rank " + std::to_string(rank) + " (host");
        if (std::find(absent.begin(), absent.end(), rank) != absent.end()) {
          EXPECT_THAT(error, name);
        }
      }
    }
    all.arrive_and_wait();  // a rank that ended would be named for that
  });
}

TEST(ParityMonitoredBarrier, NamesTheMissingRank) { expect_named(3, {1}, 300ms); }
TEST(ParityMonitoredBarrier, NamesAllMissingRanks) { expect_named(4, {1, 2, 3}, 300ms); }

TEST(ParityMonitoredBarrier, WorksOnASubgroup) {
  std::barrier<> all(3);
  run_ranks(3, [&](const Group& world) {
    const Group pair = world->rank() < 2 ? world->new_group(std::vector<int>{0, 1}, "pair") : nullptr;
    if (pair) monitored_barrier(20s, pair);
    if (world->rank() == 0) {
      try {
        monitored_barrier(200ms, pair);
        FAIL() << "rank 1 did not reach the barrier";
      } catch (const Error& error) {
        EXPECT_THAT(error.what(), HasSubstr("rank 1"));
      }
    }
    all.arrive_and_wait();
    monitored_barrier(20s, world);  // the group of all ranks is still usable
  });
}

TEST(ParityMonitoredBarrier, ADeadlineOfZeroIsAnErrorUnlessAllRanksHaveArrived) {
  std::barrier<> all(2);
  run_ranks(2, [&](const Group& group) {
    monitored_barrier(20s, group);
    if (group->rank() == 0) {
      EXPECT_THROW(monitored_barrier(0ms, group), Error);
    }
    all.arrive_and_wait();
  });
}

TEST(ParityAveraging, OverTheWorldAndOverASubgroup) {
  run_ranks(4, [](const Group& world) {
    const bool even = world->rank() % 2 == 0;
    const Group half = world->new_group(even ? std::vector<int>{0, 2} : std::vector<int>{1, 3}, even ? "even" : "odd");
    Linear net(5, 5);
    const auto average = [&](const Group& group) {
      {
        at::NoGradGuard no_grad;
        for (at::Tensor parameter : net->parameters()) parameter.fill_(world->rank());
      }
      EXPECT_TRUE(PeriodicModelAverager({.period = 1, .group = group}).average_parameters(net->parameters()));
      return net->weight[0][0].item<float>();
    };
    EXPECT_EQ(average(world), 1.5F);
    EXPECT_EQ(average(half), even ? 1.0F : 2.0F);
  });
}

TEST(ParityZero, ShardsOverASubgroup) {
  run_ranks(4, [](const Group& world) {
    const bool even = world->rank() % 2 == 0;
    const Group half = world->new_group(even ? std::vector<int>{0, 2} : std::vector<int>{1, 3}, even ? "even" : "odd");
    auto net = with_known_parameters(torch::nn::Sequential(Linear(20, 10), Linear(10, 5)));
    auto plain = with_known_parameters(torch::nn::Sequential(Linear(20, 10), Linear(10, 5)));
    const torch::optim::SGDOptions options = torch::optim::SGDOptions(0.01).momentum(0.99);
    ZeroRedundancyOptimizer<torch::optim::SGD> sharded(net->parameters(), options, {.group = half});
    torch::optim::SGD whole(plain->parameters(), options);
    for (int step = 0; step < 5; ++step) {
      const at::Tensor x = batch(even ? 0 : 1, {3, 20}, step);  // the same on the ranks of one half
      sharded.zero_grad();
      whole.zero_grad();
      net->forward(x).pow(2).mean().backward();
      plain->forward(x).pow(2).mean().backward();
      sharded.step();
      whole.step();
      for (std::size_t i = 0; i < plain->parameters().size(); ++i) {
        EXPECT_TRUE(at::equal(net->parameters()[i], plain->parameters()[i])) << i;
      }
    }
    at::Tensor held = at::full({1}, static_cast<std::int64_t>(sharded.local().state().size()), at::kLong);
    EXPECT_LT(held.item<std::int64_t>(), 4);
    half->all_reduce(held, {}).wait();
    EXPECT_EQ(held.item<std::int64_t>(), 4);  // each parameter's state is on one rank of the two
  });
}

TEST(ParityZero, ZeroGradAndTheLossOfAClosure) {
  run_ranks(2, [](const Group& group) {
    Linear net(1, 1);
    {
      at::NoGradGuard no_grad;
      net->weight.fill_(1);
      net->bias.fill_(2);
    }
    ZeroRedundancyOptimizer<torch::optim::SGD> optimizer(net->parameters(), 0.1, {.group = group});
    const auto closure = [&] {
      optimizer.zero_grad();
      const at::Tensor loss = torch::l1_loss(net(at::ones({1, 1})), at::full({1, 1}, 4.0));
      loss.backward();
      return loss;
    };
    EXPECT_EQ(optimizer.step(closure).item<float>(), 1.0F);
    EXPECT_FLOAT_EQ(net->weight.item<float>(), 1.1F);
    EXPECT_FLOAT_EQ(net->bias.item<float>(), 2.1F);
    optimizer.zero_grad();
    const at::Tensor gradient = net->weight.grad();
    EXPECT_TRUE(!gradient.defined() || gradient.item<float>() == 0);
  });
}

}  // namespace
}  // namespace lockstep::testing
