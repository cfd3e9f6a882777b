// Training with hooks: near what plain all-reduce reaches, and replicas that stay bit-identical.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "ddp/testing/hooks.h"
#include "lockstep/ddp/distributed_data_parallel.h"
#include "lockstep/ddp/hooks.h"
#include "lockstep/ddp/model_averaging.h"

namespace lockstep {
namespace {

using testing::Group;
using testing::HookFactory;
using testing::on_ranks;

constexpr int kSamples = 96;
constexpr int kFeatures = 16;
constexpr int kTargets = 8;

struct Data {
  at::Tensor inputs, targets;
};

// A teacher that a linear model can follow exactly, or one that it takes an MLP to follow.
Data make_data(bool linear) {
  torch::manual_seed(11);
  const at::Tensor inputs = at::randn({kSamples, kFeatures});
  const at::Tensor sums = at::mm(inputs, at::randn({kFeatures, kTargets}) / 4);
  return {inputs, linear ? sums : at::tanh(sums)};
}

// Made one after the other with one seed: the same on all ranks, and for all hooks.
torch::nn::Sequential make_model(int hidden) {
  torch::manual_seed(12);
  if (hidden == 0) return torch::nn::Sequential(torch::nn::Linear(kFeatures, kTargets));
  return torch::nn::Sequential(torch::nn::Linear(kFeatures, hidden), torch::nn::Tanh(),
                               torch::nn::Linear(hidden, kTargets));
}

struct Task {
  int hidden = 32;  // units of the MLP; 0: a linear model
  int ranks = 2;
  int steps = 120;
  double learning_rate = 0.5;
  std::int64_t average_from = -1;  // model averaging, every 4 steps
  bool in_sync = true;             // at the end
};

// The loss over all data at the end, or at the beginning if there are no steps.
double train(const Task& task, const HookFactory& make_hook) {
  const Data data = make_data(task.hidden == 0);
  std::vector<torch::nn::Sequential> models;
  for (int r = 0; r < task.ranks; ++r) models.push_back(make_model(task.hidden));
  double loss = 0;
  on_ranks(task.ranks, [&](int rank, const Group& group) {
    // Small buckets, so that there are several.
    DistributedDataParallel ddp(models[static_cast<std::size_t>(rank)],
                                {.process_group = group, .bucket_cap_mb = 0.002, .first_bucket_mb = 0.0005});
    if (make_hook) ddp.register_comm_hook(make_hook());
    PeriodicModelAverager averager(
        {.period = 4, .warmup_steps = std::max<std::int64_t>(task.average_from, 0), .group = group});
    torch::optim::SGD optimizer(ddp->parameters(), task.learning_rate);
    const int share = kSamples / task.ranks;
    const at::Tensor inputs = data.inputs.narrow(0, rank * share, share);
    const at::Tensor targets = data.targets.narrow(0, rank * share, share);
    for (int step = 0; step < task.steps; ++step) {
      optimizer.zero_grad();
      torch::mse_loss(ddp(inputs), targets).backward();
      optimizer.step();
      if (task.average_from >= 0) averager.average_parameters(ddp->parameters());
    }
    if (task.in_sync) ddp.verify_in_sync();
    if (rank == 0) {
      torch::NoGradGuard no_grad;
      loss = torch::mse_loss(ddp.module()->forward(data.inputs), data.targets).item<double>();
    }
  });
  return testing::shared(loss, 0);
}

void expect_near_plain(const char* name, const HookFactory& make_hook, Task task = {}) {
  for (int ranks : {2, 3}) {
    task.ranks = ranks;
    Task untrained = task;
    untrained.steps = 0;
    Task plain_task = task;
    plain_task.average_from = -1;
    const double before = train(untrained, nullptr);
    const double plain = train(plain_task, nullptr);
    const double loss = train(task, make_hook);
    ASSERT_LT(plain, 0.25 * before);
    EXPECT_LT(loss, 1.05 * plain) << name << " with " << ranks << " ranks";
  }
}

TEST(HookTraining, AllReduce) {
  const Task task;
  EXPECT_EQ(train(task, [] { return all_reduce_hook(); }), train(task, nullptr));
}
TEST(HookTraining, Fp16) {
  expect_near_plain("fp16", [] { return fp16_compress_hook(); });
}
TEST(HookTraining, Bf16) {
  expect_near_plain("bf16", [] { return bf16_compress_hook(); });
}
TEST(HookTraining, Int8) {
  expect_near_plain("int8", [] { return int8_compress_hook({.block_size = 64}); });
}
TEST(HookTraining, PowerSgd) {
  expect_near_plain("power_sgd",
                    [] { return power_sgd_hook({.matrix_approximation_rank = 2, .start_iteration = 10}); });
}
TEST(HookTraining, PostLocalSgdWithPeriodicAveraging) {
  // Averages after steps 20, 24, ..., 120: replicas are equal at the end.
  expect_near_plain("post_local_sgd", [] { return post_local_sgd_hook({.start_step = 20}); },
                    {.steps = 121, .average_from = 20});
}

TEST(HookTraining, GradientsLargeEnoughForABucketOfTheirOwn) {
  // The first layer's gradient has 1.28 MB and is reduced where autograd left it.
  const Task task{.hidden = 20000, .steps = 4, .learning_rate = 0.002};
  const double before = train({.hidden = 20000, .steps = 0}, nullptr);
  const double plain = train(task, nullptr);
  ASSERT_LT(plain, 0.9 * before);
  const auto expect_most_of_the_way = [&](const HookFactory& make, double share) {
    EXPECT_LT(train(task, make), before - share * (before - plain)) << make()->name();
  };
  expect_most_of_the_way([] { return bf16_compress_hook(); }, 0.98);
  expect_most_of_the_way([] { return int8_compress_hook(); }, 0.98);
  // A few steps are not enough to send what the compression of the first ones lost.
  expect_most_of_the_way([] { return power_sgd_hook({.start_iteration = 1}); }, 0.5);
}

TEST(HookTraining, NoopReplicasDiverge) {
  EXPECT_THROW(train({.steps = 2}, [] { return noop_hook(); }), Error);
  EXPECT_NO_THROW(train({.steps = 2, .in_sync = false}, [] { return noop_hook(); }));
}

TEST(HookTraining, ErrorFeedbackIsWhatMakesPowerSgdConverge) {
  const auto with_feedback = [](bool feedback) {
    return [feedback] {
      return power_sgd_hook({.start_iteration = 0, .min_compression_rate = 1, .use_error_feedback = feedback});
    };
  };
  const Task task{.hidden = 0, .steps = 300, .learning_rate = 0.4};
  const double before = train({.hidden = 0, .steps = 0}, nullptr);
  const double with = train(task, with_feedback(true));
  const double without = train(task, with_feedback(false));
  EXPECT_LT(with, 1e-5 * before);
  EXPECT_GT(without, 100 * with);
}

TEST(PeriodicModelAverager, AveragesEveryPeriodStepsAfterTheWarmup) {
  on_ranks(3, [](int rank, const Group& group) {
    PeriodicModelAverager averager({.period = 3, .warmup_steps = 2, .group = group});
    const at::Tensor weight = at::empty({4, 5}).set_requires_grad(true);
    const at::Tensor transposed = at::empty({4, 5}, at::kDouble).t();
    for (int step = 0; step < 10; ++step) {
      {
        torch::NoGradGuard no_grad;
        weight.fill_(rank);
        transposed.fill_(10.0 * rank);
      }
      const bool averaged = averager.average_parameters({weight, transposed});
      EXPECT_EQ(averaged, step == 2 || step == 5 || step == 8) << step;
      EXPECT_EQ(weight[2][3].item<float>(), averaged ? 1.0F : static_cast<float>(rank));
      EXPECT_EQ(transposed[4][0].item<double>(), averaged ? 10.0 : 10.0 * rank);
    }
    EXPECT_EQ(averager.step(), 10);
    EXPECT_THROW(PeriodicModelAverager({.period = 0, .group = group}), Error);
    EXPECT_THROW(PeriodicModelAverager({.warmup_steps = -1, .group = group}), Error);
  });
}

}  // namespace
}  // namespace lockstep
