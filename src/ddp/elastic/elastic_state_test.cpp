#include "ddp/elastic/elastic_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <array>
#include <stdexcept>

#include "ddp/elastic/running.h"
#include "ddp/testing/test_ranks.h"
#include "lockstep/ddp/hooks.h"

namespace lockstep::detail {
namespace {

using ::testing::HasSubstr;

// A model with a batch norm, for its buffers, and an Adam that has made a step.
struct Trained {
  explicit Trained(double learning_rate = 0.01)
      : optimizer(model->parameters(), torch::optim::AdamOptions(learning_rate)) {
    torch::NoGradGuard no_grad;
    for (at::Tensor& parameter : model->parameters()) parameter.fill_(0.5);
    set_gradients();
    state.make_step([&] { optimizer.step(); });
    state.commit_step();
    set_gradients();
  }
  void set_gradients() {
    for (at::Tensor& parameter : model->parameters()) parameter.mutable_grad() = at::ones_like(parameter);
  }
  void step() {
    state.make_step([&] { optimizer.step(); });
  }
  at::Tensor weight() { return model->parameters()[0]; }

  torch::nn::Sequential model{torch::nn::Linear(4, 3), torch::nn::BatchNorm1d(3)};
  torch::optim::Adam optimizer;
  checkpoint::State content{.model = *model, .optimizer = optimizer};
  ElasticState state{content, 0};
};

TEST(ElasticState, AFailureBeforeTheStepGoesBackToTheCommit) {
  Trained trained;
  trained.model->buffers()[0].fill_(7);  // by a forward
  trained.state.settle();
  EXPECT_EQ(trained.state.progress(), 1);
  EXPECT_EQ(trained.content.step, 1);
  EXPECT_NE(trained.model->buffers()[0][0].item<float>(), 7);
}

TEST(ElasticState, AStepThatWasMadeCountsEvenIfItChangedNothing) {
  for (const double learning_rate : {0.01, 0.0}) {
    Trained trained(learning_rate);
    trained.step();
    trained.state.settle();
    EXPECT_EQ(trained.state.progress(), 2) << learning_rate;
    EXPECT_EQ(trained.content.step, 2);
  }
}

TEST(ElasticState, AStepWithoutAMarkIsAnErrorAtTheCommit) {
  Trained trained;
  trained.optimizer.step();
  try {
    trained.state.commit_step();
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), StatusCode::invalid_argument);
    EXPECT_THAT(error.what(), HasSubstr("context.step(optimizer) instead of optimizer.step()"));
  }
}

TEST(ElasticState, ACommitWithoutAStepIsAllowed) {
  Trained trained;
  trained.state.commit_step();  // the program has skipped a step whose loss was not finite
  EXPECT_EQ(trained.state.progress(), 2);
}

TEST(ElasticState, TwoStepsForOneCommitAreAnError) {
  Trained trained;
  trained.step();
  EXPECT_THROW(trained.step(), Error);
}

// As averages of the weights that are swapped in for an evaluation.
TEST(ElasticState, ParametersChangedOutsideOfAStepDoNotCount) {
  for (const bool stepped : {false, true}) {
    Trained trained;
    if (stepped) trained.step();
    torch::NoGradGuard no_grad;
    const at::Tensor saved = trained.weight().clone();
    trained.weight().fill_(3);
    trained.weight().copy_(saved);  // and back: that does not matter
    trained.state.settle();
    EXPECT_EQ(trained.state.progress(), stepped ? 2 : 1);
    trained.weight().fill_(3);
    trained.state.settle();
    EXPECT_EQ(trained.state.progress(), -1) << stepped;
  }
}

TEST(ElasticState, AStepThatWasNotFinishedDoesNotCountIfItChangedParameters) {
  const auto progress_after = [](bool changes) {
    Trained trained;
    EXPECT_THROW(trained.state.make_step([&] {
      torch::NoGradGuard no_grad;
      if (changes) trained.weight().add_(1);
      throw std::runtime_error("a peer was lost");
    }),
                 std::runtime_error);
    trained.state.settle();
    return trained.state.progress();
  };
  EXPECT_EQ(progress_after(true), -1);
  EXPECT_EQ(progress_after(false), 1);
}

TEST(ElasticState, NotANumberEqualsItself) {
  Trained trained;
  trained.state.make_step([&] {
    torch::NoGradGuard no_grad;
    trained.weight().fill_(std::nan(""));
  });
  trained.state.settle();
  EXPECT_EQ(trained.state.progress(), 2);
}

TEST(ElasticState, TheHashCoversAllThatIsTransferred) {
  const std::uint64_t reference = Trained().state.hash();
  EXPECT_EQ(Trained().state.hash(), reference) << "it must not depend on addresses";
  const auto differs = [&](const char* what, const std::function<void(Trained&)>& change) {
    Trained trained;
    torch::NoGradGuard no_grad;
    change(trained);
    EXPECT_NE(trained.state.hash(), reference) << what;
  };
  differs("a parameter", [](Trained& t) { t.weight()[1][2] += 1e-6; });
  differs("the optimizer's state", [](Trained& t) {
    static_cast<torch::optim::AdamParamState&>(*t.optimizer.state().begin()->second).exp_avg().add_(1e-6);
  });
  differs("its steps", [](Trained& t) {
    auto& state = static_cast<torch::optim::AdamParamState&>(*t.optimizer.state().begin()->second);
    state.step(state.step() + 1);
  });
  differs("the learning rate", [](Trained& t) {
    static_cast<torch::optim::AdamOptions&>(t.optimizer.param_groups()[0].options()).lr(0.02);
  });
  differs("the number of commits", [](Trained& t) { t.state.commit_step(); });
}

// Batch normalisation changes them in each forward, on each rank in its own way.
TEST(ElasticState, BuffersThatDifferAreNoDifferentState) {
  Trained one, other;
  torch::NoGradGuard no_grad;
  other.model->buffers()[0][1] += 1e-6;
  EXPECT_EQ(one.state.hash(), other.state.hash());
  EXPECT_NE(one.state.hash_of_buffers(), other.state.hash_of_buffers());
}

TEST(ElasticState, AllRanksTakeTheBuffersOfOne) {
  std::array<std::uint64_t, 3> hashes{};
  lockstep::testing::run_ranks(3, [&](const lockstep::testing::Group& group) {
    torch::NoGradGuard no_grad;
    Trained trained;
    trained.model->buffers()[0].fill_(group->rank() + 1);
    trained.state.take_buffers(*group, 1);
    EXPECT_EQ(trained.model->buffers()[0][0].item<float>(), 2);
    trained.model->buffers()[0].fill_(7);  // a forward whose step is dropped
    trained.state.settle();
    EXPECT_EQ(trained.model->buffers()[0][0].item<float>(), 2);
    hashes[static_cast<std::size_t>(group->rank())] = trained.state.hash_of_buffers();
  });
  EXPECT_EQ(hashes[0], hashes[1]);
  EXPECT_EQ(hashes[2], hashes[1]);
}

TEST(ElasticJob, RefusesHooksWithStateOfOneRank) {
  const ElasticRunning running;
  try {
    power_sgd_hook({});
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("power_sgd_hook cannot be used inside elastic::run"));
  }
}

}  // namespace
}  // namespace lockstep::detail
