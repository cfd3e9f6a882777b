// DDP between processes: gradients in registered memory, and the error that a rank gets when another dies.
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
  std::vector<at::Tensor> kept;  // as large as gradients, made while no backward runs: they must not take their memory
  for (int step = 0; step < 8; ++step) {
    for (auto& parameter : model->parameters()) parameter.mutable_grad() = at::Tensor();
    const at::Tensor loss = torch::mse_loss(ddp(share(whole(64))), share(whole(8)));
    {
      at::NoGradGuard no_grad;
      for (const at::Tensor& parameter : model->parameters()) kept.push_back(parameter.clone());
    }
    loss.backward();
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

TEST(DdpProcesses, BackwardThrowsAnErrorThatNamesTheLostPeer) {
  ProcessSet ranks = start_ranks(3, "doomed_rank");
  ASSERT_TRUE(ranks.wait_all(in_seconds(60))) << ranks.report();
  for (int rank : {0, 2}) {
    EXPECT_TRUE(ranks.exit_status(rank)->success()) << ranks.report();
    EXPECT_THAT(ranks.output(rank), AllOf(HasSubstr("backward threw"), HasSubstr("rank 1"))) << ranks.report();
  }
}

// A group of ranks 0 and 1, which ranks 2 and 3 use too, as programs do that are the same on every rank.
LOCKSTEP_PROCESS_ROLE(outsider_rank) {
  torch::set_num_threads(1);
  ProcessGroupScope job;
  const auto group = new_group({1, 0});
  at::Tensor part = torch::full({3}, 1.0), whole = torch::full({3}, 100.0);
  all_reduce(part, {.group = group});
  all_reduce(whole);
  std::cout << "rank " << get_rank(group) << " of " << get_world_size(group) << ", part " << part[0].item<double>()
            << ", whole " << whole[0].item<double>() << '\n';
  return 0;
}

TEST(GroupProcesses, ACollectiveOnAGroupOfOtherRanksDoesNothing) {
  ProcessSet ranks = start_ranks(4, "outsider_rank");
  ASSERT_TRUE(ranks.wait_all(in_seconds(60))) << ranks.report();
  EXPECT_TRUE(ranks.all_succeeded()) << ranks.report();
  for (int rank : {0, 1}) {
    EXPECT_EQ(ranks.output(rank), "rank " + std::to_string(rank) + " of 2, part 2, whole 400\n") << ranks.report();
  }
  for (int rank : {2, 3}) {
    EXPECT_EQ(ranks.output(rank), "rank -1 of -1, part 1, whole 400\n") << ranks.report();
    EXPECT_THAT(ranks.error_output(rank), HasSubstr("all_reduce on rank " + std::to_string(rank))) << ranks.report();
  }
}

// Two groups from one call, one of them of ranks 0 and 2, and rank 3 in none.
LOCKSTEP_PROCESS_ROLE(enumerated_rank) {
  torch::set_num_threads(1);
  ProcessGroupScope job;
  const Subgroups parts = new_subgroups_by_enumeration({{2, 0}, {1}});
  at::Tensor sum = torch::full({3}, job.rank() + 1.0), from_two = torch::full({3}, job.rank() + 1.0);
  all_reduce(sum, {.group = parts.mine});
  broadcast(from_two, 2, {.group = parts.all[0]});
  std::string refusal = "none";
  try {
    new_subgroups_by_enumeration({{0, 1}, {1, 2}});
  } catch (const Error& error) {
    refusal = error.what();
  }
  barrier();
  std::cout << "rank " << get_rank(parts.mine) << ", sum " << sum[0].item<double>() << ", from two "
            << from_two[0].item<double>() << ", " << refusal << '\n';
  return 0;
}

TEST(GroupProcesses, AreEnumeratedByGlobalRanks) {
  ProcessSet ranks = start_ranks(4, "enumerated_rank");
  ASSERT_TRUE(ranks.wait_all(in_seconds(60))) << ranks.report();
  EXPECT_TRUE(ranks.all_succeeded()) << ranks.report();
  const std::vector<std::string> expected = {"rank 0, sum 4, from two 3", "rank 0, sum 2, from two 2",
                                             "rank 1, sum 4, from two 3", "rank -1, sum 4, from two 4"};
  for (std::size_t rank = 0; rank < expected.size(); ++rank) {
    EXPECT_EQ(
        ranks.output(static_cast<int>(rank)),
        expected[rank] + ", invalid_argument: new_subgroups_by_enumeration: rank 1 is both in [0, 1] and in [1, 2]\n")
        << ranks.report();
  }
}

}  // namespace
}  // namespace lockstep::testing
