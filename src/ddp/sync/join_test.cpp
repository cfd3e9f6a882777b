// What remains of a join() in which ranks made different numbers of steps.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>

#include "ddp/testing/test_models.h"
#include "lockstep/ddp/distributed_data_parallel.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using namespace testing;  // ranks

struct Training {
  explicit Training(const Group& of_ranks)
      : group(of_ranks), net(4, 1), ddp(net, {.process_group = group}), adam(net->parameters(), 0.1) {}
  void steps(int count) {
    for (int step = 0; step < count; ++step) {
      adam.zero_grad();
      ddp(torch::full({1, 4}, 1.0 + group->rank() + step)).pow(2).sum().backward();
      adam.step();
    }
  }
  // Rank 0 makes more steps than the others.
  void uneven_epoch(const JoinOptions& options = {}) {
    ddp.join([&] { steps(group->rank() == 0 ? 6 : 2); }, options);
  }

  Group group;
  torch::nn::Linear net;
  DistributedDataParallel<torch::nn::Linear> ddp;
  torch::optim::Adam adam;
};

TEST(DdpAfterJoin, OptimizersHaveTheStateOfARankThatMadeAllSteps) {
  run_ranks(3, [](const Group& group) {
    Training training(group);
    for (int epoch = 0; epoch < 2; ++epoch) {
      training.uneven_epoch({.optimizers = {training.adam}});
      training.steps(10);
    }
    training.ddp.verify_in_sync();
  });
}

TEST(DdpAfterJoin, AForgottenOptimizerIsAnErrorInTheNextSteps) {
  const auto errors = errors_of_ranks(2, [](const Group& group) {
    Training training(group);
    training.uneven_epoch();
    training.steps(2);
  });
  for (const std::string& error : errors) EXPECT_THAT(error, HasSubstr("JoinOptions::optimizers"));
}

TEST(DdpAfterJoin, AForgottenOptimizerIsAnErrorInTheNextJoin) {
  const auto errors = errors_of_ranks(2, [](const Group& group) {
    Training training(group);
    training.uneven_epoch();
    training.uneven_epoch();
  });
  for (const std::string& error : errors) EXPECT_THAT(error, HasSubstr("JoinOptions::optimizers"));
}

TEST(DdpAfterJoin, AnEvenOneNeedsNoOptimizers) {
  run_ranks(2, [](const Group& group) {
    Training training(group);
    for (int epoch = 0; epoch < 2; ++epoch) training.ddp.join([&] { training.steps(5); });
    training.ddp.verify_in_sync();
  });
}

}  // namespace
}  // namespace lockstep
