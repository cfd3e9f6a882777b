// DDP between processes: gradients in registered memory, and what a rank hears when another dies.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <iostream>

#include "lockstep/lockstep.h"
#include "support/process_set.h"

namespace lockstep::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

torch::nn::Sequential wide_model() {
  torch::manual_seed(3);
  return torch::nn::Sequential(torch::nn::Linear(64, 600), torch::nn::Tanh(), torch::nn::Linear(600, 600),
                               torch::nn::Tanh(), torch::nn::Linear(600, 600), torch::nn::Tanh(),
                               torch::nn::Linear(600, 8));
}

at::Tensor whole(std::int64_t columns) { return torch::linspace(-1, 1, 24 * columns).reshape({24, columns}); }

// Trains with DDP and alone on the whole batch, and compares.
LOCKSTEP_PROCESS_ROLE(train_rank) {
  torch::set_num_threads(1);
  ProcessGroupScope job;
  torch::nn::Sequential model = wide_model(), alone = wide_model();
  DistributedDataParallel ddp(model);
  torch::optim::SGD optimizer(ddp->parameters(), torch::optim::SGDOptions(0.05).momentum(0.9));
  torch::optim::SGD optimizer_alone(alone->parameters(), torch::optim::SGDOptions(0.05).momentum(0.9));
  const auto share = [&](const at::Tensor& all) { return all.chunk(job.world_size())[std::size_t(job.rank())]; };
  for (int step = 0; step < 8; ++step) {
    for (auto& parameter : model->parameters()) parameter.mutable_grad() = at::Tensor();
    torch::mse_loss(ddp(share(whole(64))), share(whole(8))).backward();
    optimizer.step();
    optimizer_alone.zero_grad();
    torch::mse_loss(alone->forward(whole(64)), whole(8)).backward();
    optimizer_alone.step();
  }
  ddp.verify_in_sync();
  for (std::size_t i = 0; i < model->parameters().size(); ++i) {
    if (!torch::allclose(model->parameters()[i], alone->parameters()[i], 1e-4, 1e-6)) {
      std::cerr << "parameter " << i << " differs from one process's\n";
      return 1;
    }
  }
  std::cout << "zero copy " << (ddp.logging_data().zero_copy_fraction > 0.5) << '\n'
            << to_string(ddp.logging_data()) << '\n';
  return 0;
}

class DdpProcesses : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, DdpProcesses, ::testing::Values(1, 2, 3, 4));

TEST_P(DdpProcesses, TrainAsOneProcessWouldWithLargeGradientsInPlace) {
  ProcessSet ranks = start_ranks(GetParam(), "train_rank");
  ASSERT_TRUE(ranks.wait_all(in_seconds(90))) << ranks.report();
  EXPECT_TRUE(ranks.all_succeeded()) << ranks.report();
  EXPECT_THAT(ranks.output(0), HasSubstr(GetParam() > 1 ? "zero copy 1" : "zero copy 0")) << ranks.report();
}

LOCKSTEP_PROCESS_ROLE(doomed_rank) {
  torch::set_num_threads(1);
  ProcessGroupScope job;
  torch::nn::Sequential model = wide_model();
  DistributedDataParallel ddp(model);
  try {
    for (int step = 0;; ++step) {
      model->zero_grad();
      at::Tensor loss = ddp(whole(64)).sum();
      if (step == 3) print_mark("third step");
      if (step == 3 && job.rank() == 1) ::raise(SIGKILL);
      loss.backward();
    }
  } catch (const Error& error) {
    std::cout << "backward threw: " << error.what() << '\n';
    return error.code() == StatusCode::peer_lost ? 0 : 3;
  }
}

TEST(DdpProcesses, ALostPeerComesOutOfBackwardByName) {
  ProcessSet ranks = start_ranks(3, "doomed_rank");
  ASSERT_TRUE(ranks.wait_all(in_seconds(60))) << ranks.report();
  for (int rank : {0, 2}) {
    EXPECT_TRUE(ranks.exit_status(rank)->success()) << ranks.report();
    EXPECT_THAT(ranks.output(rank), AllOf(HasSubstr("backward threw"), HasSubstr("rank 1"))) << ranks.report();
  }
}

}  // namespace
}  // namespace lockstep::testing
