// The fuzzer's own tests: what it generates, how it shrinks, and two shrunken models as it prints them.
#include <gtest/gtest.h>

#include <set>

#include "ddp/model_fuzz/by_hand.h"
#include "ddp/model_fuzz/generate.h"
#include "ddp/model_fuzz/outcome.h"
#include "ddp/model_fuzz/print_cpp.h"
#include "ddp/model_fuzz/rules.h"
#include "ddp/model_fuzz/shrink.h"

namespace lockstep::fuzz {
namespace {

using namespace testing;  // ranks as threads

constexpr std::uint64_t kSeeds = 2000;

TEST(ModelFuzzGenerator, TheSameSeedGivesTheSameCase) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) EXPECT_EQ(print_cpp(generate(seed)), print_cpp(generate(seed)));
}

TEST(ModelFuzzGenerator, CreatesOnlyCasesThatDdpMustTrain) {
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) EXPECT_EQ(why_unsupported(generate(seed)), "") << seed;
}

TEST(ModelFuzzGenerator, NodesTakeOnlyEarlierNodesOfTheirSegment) {
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    const Model model = generate(seed).model;
    for (std::size_t i = 0; i < model.nodes.size(); ++i) {
      for (int in : model.nodes[i].in) {
        ASSERT_LT(in, static_cast<int>(i)) << seed;
        const bool result = model.nodes[i].op == Op::checkpoint && in != model.nodes[i].in[0];
        if (result) continue;
        ASSERT_EQ(model.nodes[static_cast<std::size_t>(in)].segment, model.nodes[i].segment) << seed;
      }
    }
  }
}

TEST(ModelFuzzGenerator, ReachesEveryOperationOptionAndThreshold) {
  std::set<Op> ops;
  std::set<Hook> hooks;
  std::set<int> worlds;
  std::set<std::int64_t> sizes;
  int options = 0, training = 0;
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    const Case item = generate(seed);
    for (const Node& node : item.model.nodes) ops.insert(node.op);
    for (const Parameter& parameter : item.model.parameters) {
      sizes.insert(parameter.bytes());
      options |= parameter.ignored;
    }
    const Options& o = item.options;
    const Training& t = item.training;
    hooks.insert(o.hook);
    worlds.insert(t.world);
    options |= !o.broadcast_buffers << 1 | !o.init_sync << 2 | o.find_unused_parameters << 3 | o.static_graph << 4 |
               o.gradient_as_bucket_view << 5 | o.sample_weighted << 6 | (o.verify_every > 0) << 7;
    training |= t.joins() | (t.micro_batches > 1) << 1 | (t.forwards > 1) << 2 | t.backward_twice << 3 |
                t.keep_gradients << 4 | t.evaluate << 5 | !t.equal_batches() << 6;
  }
  EXPECT_EQ(ops.size(), static_cast<std::size_t>(Op::checkpoint) + 1);
  EXPECT_EQ(hooks.size(), 8u);
  EXPECT_EQ(worlds, (std::set<int>{1, 2, 3, 4, 5}));
  EXPECT_EQ(options, 0xff);
  EXPECT_EQ(training, 0x7f);
  for (const std::int64_t row : {16, 32}) {  // around the 1 MiB from which a gradient has a bucket of its own
    for (const std::int64_t bytes : {(1 << 20) - row, std::int64_t{1} << 20, (1 << 20) + row}) {
      EXPECT_TRUE(sizes.contains(bytes)) << bytes;
    }
  }
  EXPECT_TRUE(sizes.contains(0));
  EXPECT_TRUE(sizes.contains(4));
}

TEST(ModelFuzzShrinker, EveryEditMakesTheCaseSmallerAndLeavesItSupported) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const Case item = generate(seed);
    for (int n = 0; n < edit_count(item); ++n) {
      const std::optional<Case> smaller = apply_edit(item, n);
      if (!smaller) continue;
      EXPECT_LT(size_of(*smaller), size_of(item));
      EXPECT_EQ(why_unsupported(*smaller), "");
    }
  }
}

TEST(ModelFuzzShrinker, EndsAndNamesWhatIsLeftByItsEdits) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const Case whole = generate(seed);
    const bool batch_norm = contains(whole.model, Op::batch_norm);
    const Case least =
        shrink(whole, 1 << 20, [&](const Case& item) { return contains(item.model, Op::batch_norm) == batch_norm; });
    EXPECT_LE(least.model.nodes.size(), 8u) << print_cpp(least);
    EXPECT_EQ(print_cpp(case_of(seed, least.edits)), print_cpp(least));
    int trials = 0;
    shrink(whole, 10, [&](const Case&) { return ++trials, false; });
    EXPECT_LE(trials, 10);
  }
}

TEST(ModelFuzzOutcome, IsSentAsText) {
  const Outcome outcome{Outcome::Kind::wrong, "gradient", "rank 1: p0 differs"};
  const Outcome back = outcome_from_text(to_text(outcome));
  EXPECT_TRUE(back.same_failure(outcome));
  EXPECT_EQ(back.detail, outcome.detail);
  EXPECT_EQ(worst_of({{}, outcome, {}}).kind, Outcome::Kind::wrong);
}

TEST(ModelFuzzOutcome, MessagesThatDifferInNumbersAndNamesAreOneCategory) {
  EXPECT_EQ(category_of_message("rank 1: parameter \"p3\" [2, 4] got none"),
            category_of_message("rank 22: parameter \"p14\" [1] got none"));
}

// As printed, with a name.

// ddp_model_fuzz --one 20 --edits 5,9,11,15,21,23,28,31,41,48,36,37
// world 2, steps 1, batches [1]; 3 parameters of 2097152 bytes, 11 nodes, 1 outputs
struct FuzzedModel20 : torch::nn::Module {
  FuzzedModel20() {
    p0 = register_parameter("p0", values({32768, 8}, 100, torch::kFloat), true);
    p1 = register_parameter("p1", values({32767, 8}, 101, torch::kFloat), true);
    p1.register_hook([this](const at::Tensor& gradient) { kept.push_back(gradient); });
    p2 = register_parameter("p2", values({1, 8}, 102, torch::kFloat), true);
  }
  std::vector<at::Tensor> forward(const at::Tensor& x0) {
    const at::Tensor v0 = x0;
    const at::Tensor v1 = p0;
    const at::Tensor v2 = v1.reshape({262144});
    const at::Tensor v3 = p1;
    const at::Tensor v4 = p2;
    const at::Tensor v5 = torch::cat({v3, v4}, 0);
    const at::Tensor v6 = v5.reshape({262144});
    const at::Tensor v7 = v2 + v6;
    const at::Tensor v8 = v7.reshape({32768, 8});
    const at::Tensor v9 = torch::linear(v0, v8);
    const at::Tensor v10 = v9.matmul(v8);
    return {v10};
  }
  int rank = 0, step = 0;
  std::vector<at::Tensor> kept, retained;  // gradients, values with gradients
  at::Tensor p0, p1, p2;
};

TEST(DdpFuzzed, AGradientThatATensorHookKeptStaysLocal) {
  run_ranks(2, [](const Group& group) {
    const int rank = group->rank();
    const auto net = std::make_shared<FuzzedModel20>(), alone = std::make_shared<FuzzedModel20>();
    DistributedDataParallel ddp(net, {.process_group = group});
    torch::optim::SGD optimizer(trained(*net), torch::optim::SGDOptions(0.05).momentum(0));
    const std::vector<int> batches = {1};
    const auto loss_of = [&](auto&& forward, int step, int micro) {
      const int samples = batches[std::size_t((step * 1 + micro) * 2 + rank) % batches.size()];
      at::Tensor loss = at::zeros({});
      for (int f = 0; f < 1; ++f) {
        const std::int64_t salt = batch_salt(rank, step, micro, f);
        const std::vector<at::Tensor> y = forward(values({samples, 8}, salt, torch::kFloat));
        loss = loss + (y[0].sum()) / std::max(samples, 1);
      }
      return loss / 1;
    };
    for (int step = 0; step < 1; ++step) {
      net->rank = alone->rank = rank, net->step = alone->step = step;
      for (at::Tensor& p : net->parameters()) p.mutable_grad() = at::Tensor();
      load(*alone, *net);
      const auto by_hand = [&](const auto&... x) { return alone->forward(x...); };
      const at::Tensor expected = loss_of(by_hand, step, 0);
      expected.backward();
      const auto local = copies(alone->kept, alone->retained);
      alone->kept.clear(), alone->retained.clear();
      average(*alone, group);
      const auto with_ddp = [&](const auto&... x) { return ddp(x...); };
      const at::Tensor loss = loss_of(with_ddp, step, 0);
      loss.backward();
      expect_same_gradients(*net, *alone);
      expect_close(copies(net->kept, net->retained), local);
      net->kept.clear(), net->retained.clear();
      optimizer.step();
    }
    ddp.verify_in_sync();
  });
}

// ddp_model_fuzz --one 193 --edits 1,1,10,16,21,26,40,40,44,36
// world 2, steps 1, batches [1], join [1,0]; 2 parameters of 2097152 bytes, 9 nodes, 1 outputs
struct FuzzedModel193 : torch::nn::Module {
  FuzzedModel193() {
    p0 = register_parameter("p0", values({65536, 4}, 100, torch::kFloat), true);
    p1 = register_parameter("p1", values({65536, 4}, 101, torch::kFloat), true);
  }
  std::vector<at::Tensor> forward(const at::Tensor& x0) {
    const at::Tensor v0 = x0;
    const at::Tensor v1 = p1;
    const at::Tensor v2 = v1.reshape({262144});
    const at::Tensor v3 = p0;
    const at::Tensor v4 = v3.reshape({262144});
    const at::Tensor v5 = v2 + v4;
    const at::Tensor v6 = v5.reshape({65536, 4});
    const at::Tensor v7 = v6.sum(0) * 0.01;
    const at::Tensor v8 = v0 + v7;
    return {v8};
  }
  int rank = 0, step = 0;
  at::Tensor p0, p1;
};

TEST(DdpFuzzed, TwoParametersWhoseGradientsShareMemoryTrainInJoin) {
  run_ranks(2, [](const Group& group) {
    const int rank = group->rank();
    const auto net = std::make_shared<FuzzedModel193>(), alone = std::make_shared<FuzzedModel193>();
    DistributedDataParallel ddp(net, {.process_group = group});
    torch::optim::SGD optimizer(trained(*net), torch::optim::SGDOptions(0.05).momentum(0));
    const std::vector<int> batches = {1};
    const auto loss_of = [&](auto&& forward, int step, int micro) {
      const int samples = batches[std::size_t((step * 1 + micro) * 2 + rank) % batches.size()];
      at::Tensor loss = at::zeros({});
      for (int f = 0; f < 1; ++f) {
        const std::int64_t salt = batch_salt(rank, step, micro, f);
        const std::vector<at::Tensor> y = forward(values({samples, 4}, salt, torch::kFloat));
        loss = loss + (y[0].sum()) / std::max(samples, 1);
      }
      return loss / 1;
    };
    const std::vector<int> steps = {1, 0};
    ddp.join(
        [&] {
          for (int step = 0; step < steps[std::size_t(rank)]; ++step) {
            net->rank = rank, net->step = step;
            for (at::Tensor& p : net->parameters()) p.mutable_grad() = at::Tensor();
            const auto with_ddp = [&](const auto&... x) { return ddp(x...); };
            const at::Tensor loss = loss_of(with_ddp, step, 0);
            loss.backward();
            optimizer.step();
          }
        },
        {.divide_by_initial_world_size = true});
    ddp.verify_in_sync();
    for (at::Tensor& p : net->parameters()) p.mutable_grad() = at::Tensor();
    const int step = 1;  // and one more step, on all ranks
    net->rank = rank, net->step = step;
    const auto with_ddp = [&](const auto&... x) { return ddp(x...); };
    const at::Tensor loss = loss_of(with_ddp, step, 0);
    loss.backward();
  });
}

}  // namespace
}  // namespace lockstep::fuzz
