// ElasticState::transfer: what arrives is equal bit for bit, for every optimizer and for random models, and so is the
// step after it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <random>

#include "checkpoint/state_header.h"
#include "ddp/elastic/elastic_state.h"
#include "ddp/elastic/state_chain.h"
#include "ddp/snapshot/tensors.h"
#include "ddp/testing/error_of.h"
#include "ddp/testing/test_optimizers.h"
#include "ddp/testing/test_ranks.h"

namespace lockstep::detail {
namespace {

using lockstep::testing::error_of;
using lockstep::testing::errors_of_ranks;
using lockstep::testing::Group;
using lockstep::testing::optimizer_kinds;
using lockstep::testing::Parameters;
using lockstep::testing::run_ranks;
using lockstep::testing::TestOptimizer;
using ::testing::AllOf;
using ::testing::HasSubstr;

// Shapes and types depend on `shape_seed`, values on `value_seed`.
struct RandomModel : torch::nn::Module {
  RandomModel(unsigned shape_seed, unsigned value_seed) : shapes(shape_seed), values(value_seed) {
    register_parameter("weight", random_values({4, 3}));  // two that LBFGS accepts
    register_parameter("bias", random_values({3}));
    register_parameter("transposed", random_values({5, 2}).t());
    const int more = static_cast<int>(shapes() % 6);
    for (int i = 0; i < more; ++i) {
      const at::Tensor tensor = random_values(random_shape());
      register_parameter("more" + std::to_string(i), shapes() % 3 == 0 ? tensor.to(torch::kDouble) : tensor);
    }
    if (shapes() % 3 == 0) register_parameter("large", random_values({300, 1000}));
    if (shapes() % 3 == 0) register_parameter("larger", random_values({1100, 1000}));
    const int buffers = static_cast<int>(shapes() % 4);
    for (int i = 0; i < buffers; ++i) {
      const at::ScalarType types[] = {at::kHalf, at::kBool, at::kLong, at::kByte, at::kBFloat16};
      register_buffer("buffer" + std::to_string(i), random_values(random_shape()).to(types[shapes() % 5]));
    }
  }

  std::vector<std::int64_t> random_shape() {
    std::vector<std::int64_t> shape(shapes() % 4);
    for (std::int64_t& size : shape) size = static_cast<std::int64_t>(shapes() % 9);  // 0, too
    return shape;
  }
  at::Tensor random_values(const std::vector<std::int64_t>& shape) {
    const at::Tensor tensor = at::empty(shape);
    const auto phase = static_cast<double>(values() % 1000);
    return torch::arange(tensor.numel()).mul(0.37).add(phase).sin().to(torch::kFloat).reshape(shape);
  }

  std::mt19937 shapes, values;
};

struct Training {
  Training(const TestOptimizer& kind, unsigned shape_seed, unsigned value_seed, std::int64_t progress)
      : model(shape_seed, value_seed),
        optimizer(kind.make(model.parameters())),
        content{.model = model, .optimizer = *optimizer},
        state(content, progress) {}

  void step() {
    optimizer->step([&] {
      at::AutoGradMode with_gradients(true);
      optimizer->zero_grad();
      at::Tensor loss = torch::zeros({}, torch::kDouble);
      for (const at::Tensor& parameter : model.parameters()) {
        if (parameter.numel() > 0) loss = loss + (parameter.to(torch::kDouble) - 0.3).pow(2).mean();
      }
      loss.backward();
      return loss;
    });
  }
  void train(int steps) {
    for (int i = 0; i < steps; ++i) {
      state.make_step([&] { step(); });
      state.commit_step();
    }
  }

  RandomModel model;
  std::unique_ptr<torch::optim::Optimizer> optimizer;
  checkpoint::State content;
  ElasticState state;
};

void expect_same_on_all(const Group& group, std::uint64_t value, const std::string& what) {
  const auto mine = static_cast<std::int64_t>(value);
  const at::Tensor all = at::empty({group->size()}, at::kLong);
  group->all_gather(at::full({1}, mine, at::kLong), all, {}).wait();
  EXPECT_TRUE(all.eq(mine).all().item<bool>()) << what << ", rank " << group->rank();
}

class StateTransfer : public ::testing::TestWithParam<TestOptimizer> {};
INSTANTIATE_TEST_SUITE_P(Kinds, StateTransfer, ::testing::ValuesIn(optimizer_kinds()),
                         [](const auto& info) { return info.param.name; });

// Rank 1 has the state of the source, rank 2; rank 0 has none; rank 3 has an older one.
TEST_P(StateTransfer, WhatArrivesAndTheStepAfterItAreEqualBitForBit) {
  run_ranks(4, [&](const Group& group) {
    for (unsigned seed = 1; seed <= 5; ++seed) {
      const bool has_it = group->rank() == 1 || group->rank() == 2;
      Training training(GetParam(), seed, has_it ? 100 : group->rank(), group->rank() == 0 ? -1 : 0);
      training.content.sampler = DistributedSamplerState{.seed = 4, .dataset_size = 1000};
      if (has_it) {
        training.content.values = {{"best", 0.125},
                                   {"count", std::int64_t{7}},
                                   {"text", std::string("a\xff\0b", 4)},
                                   {"table", torch::arange(6).reshape({2, 3}).t()}};
        training.train(static_cast<int>(seed % 4));
        training.content.epoch = 2;
        training.optimizer->param_groups()[0].options().set_lr(0.0123);
        training.state.commit_step();
      } else {
        training.content.values = {{"old", 1.0}};
        if (group->rank() == 3) training.train(1);
      }
      training.state.transfer(*group, 2, {0, 3});
      const std::string where = GetParam().name + ", seed " + std::to_string(seed);
      expect_same_on_all(group, training.state.hash(), where);
      EXPECT_EQ(training.state.progress(), seed % 4 + 1) << where;
      EXPECT_EQ(training.content.epoch, 2);
      EXPECT_EQ(training.content.sampler->dataset_size, 1000);
      EXPECT_EQ(training.content.values.size(), 4U);
      EXPECT_EQ(std::get<std::string>(training.content.values.at("text")), std::string("a\xff\0b", 4));
      EXPECT_TRUE(
          at::equal(std::get<at::Tensor>(training.content.values.at("table")), torch::arange(6).reshape({2, 3}).t()));
      training.train(2);
      expect_same_on_all(group, training.state.hash(), "two steps after it: " + where);
    }
  });
}

TEST(StateTransferErrors, AnotherModelOrOptimizerIsNamedAndChangesNothing) {
  const auto adam = [](double value, std::int64_t width) {
    torch::nn::Sequential model(torch::nn::Linear(3, width), torch::nn::BatchNorm1d(width));
    at::NoGradGuard no_grad;
    for (at::Tensor& parameter : model->parameters()) parameter.fill_(value);
    return model;
  };
  const auto errors = errors_of_ranks(2, [&](const Group& group) {
    auto model = adam(group->rank(), group->rank() == 0 ? 6 : 7);
    torch::optim::Adam optimizer(model->parameters());
    checkpoint::State content{.model = *model, .optimizer = optimizer, .step = 5};
    ElasticState state(content, group->rank() == 0 ? 3 : -1);
    const std::string error = error_of([&] { state.transfer(*group, 0, {1}); });
    if (group->rank() == 0) return;  // its tensors may be in flight when the other one ends
    EXPECT_EQ(model->parameters()[0].min().item<double>(), 1);
    EXPECT_EQ(content.step, 5);
    EXPECT_EQ(state.progress(), -1);
    throw std::runtime_error(error);
  });
  EXPECT_THAT(errors[1], AllOf(HasSubstr("the state that rank 0 sent is of another model"),
                               HasSubstr("\"0.weight\" is Float [6, 3] there and Float [7, 3] in the model")));

  const auto of_optimizers = errors_of_ranks(2, [&](const Group& group) {
    auto model = adam(group->rank(), 6);
    torch::optim::Adam first(model->parameters());
    torch::optim::SGD second(model->parameters(), torch::optim::SGDOptions(0.1));
    torch::optim::Optimizer& optimizer = group->rank() == 0 ? static_cast<torch::optim::Optimizer&>(first) : second;
    checkpoint::State content{.model = *model, .optimizer = optimizer};
    ElasticState state(content, group->rank() == 0 ? 3 : -1);
    const std::string error = error_of([&] { state.transfer(*group, 0, {1}); });
    if (group->rank() == 1) throw std::runtime_error(error);
  });
  EXPECT_THAT(of_optimizers[1], AllOf(HasSubstr("holds the state of a torch::optim::Adam"),
                                      HasSubstr("the program's optimizer is a torch::optim::SGD")));
}

// The source is lost in the middle: a receiver that has a state of its own keeps it.
TEST(StateTransferErrors, AStateOfItsOwnIsKeptUntilAllHasArrived) {
  errors_of_ranks(2, [&](const Group& group) {
    torch::nn::Sequential model(torch::nn::Linear(1500, 1500));
    at::NoGradGuard no_grad;
    for (at::Tensor& parameter : model->parameters()) parameter.fill_(group->rank());
    checkpoint::State content{.model = *model, .step = 5};
    ElasticState state(content, 3);
    const std::string error = error_of([&] {
      if (group->rank() == 1) return state.transfer(*group, 0, {1});
      const auto file = checkpoint::TensorFile::of(checkpoint::tensors_of_model(*model), false);
      StateChain(*group, {0, 1})
          .pass(checkpoint::format_state_header(4, {.step = 9}, {file.head(), {}, {}}).value(), std::size_t{1} << 20);
      group->send(at::zeros({6000}, at::kByte), 1, 0, {}).wait();     // the bias
      group->send(at::zeros({4 << 20}, at::kByte), 1, 0, {}).wait();  // a part of the weight
      group->abort("lost in the middle");
    });
    if (group->rank() != 1) return;
    EXPECT_THAT(error, HasSubstr("lost in the middle"));
    EXPECT_EQ(state.progress(), 3);
    EXPECT_EQ(content.step, 5);
    for (const at::Tensor& parameter : model->parameters()) {
      EXPECT_TRUE(parameter.eq(1).all().item<bool>());
    }
  });
}

}  // namespace
}  // namespace lockstep::detail
