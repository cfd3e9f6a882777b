#include "ddp/snapshot/state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>

#include "ddp/snapshot/optimizer_copy.h"
#include "lockstep/base/status.h"

namespace lockstep::checkpoint {
namespace {

using torch::optim::Optimizer;
using Parameters = std::vector<at::Tensor>;

Parameters make_parameters() {
  torch::manual_seed(5);
  Parameters parameters{torch::randn({4, 3}), torch::randn({3}), torch::randn({2, 2}).t(),
                        torch::randn({2}, torch::kDouble)};
  for (at::Tensor& parameter : parameters) parameter.requires_grad_();
  return parameters;
}

at::Tensor loss_of(const Parameters& parameters) {
  at::Tensor loss = torch::zeros({});
  for (std::size_t i = 0; i + 1 < parameters.size(); ++i) loss = loss + (parameters[i] - 0.3 * double(i)).pow(4).sum();
  return loss;  // the last parameter gets no gradient, and so no state
}

void run(Optimizer& optimizer, const Parameters& parameters, int steps) {
  for (int step = 0; step < steps; ++step) {
    optimizer.step([&] {
      at::AutoGradMode with_gradients(true);
      optimizer.zero_grad();
      at::Tensor loss = loss_of(parameters);
      loss.backward();
      return loss;
    });
  }
}

struct Kind {
  std::string name;
  std::function<std::unique_ptr<Optimizer>(const Parameters&)> make;
};

void PrintTo(const Kind& kind, std::ostream* out) { *out << kind.name; }

template <typename Plain, typename Options>
Kind kind(const std::string& name, const Options& options) {
  return {name,
          [options](const Parameters& p) -> std::unique_ptr<Optimizer> { return std::make_unique<Plain>(p, options); }};
}

std::vector<Kind> kinds() {
  using namespace torch::optim;
  return {kind<SGD>("SGD", SGDOptions(0.01)),
          kind<SGD>("SGDMomentum", SGDOptions(0.01).momentum(0.9).nesterov(true)),
          kind<Adam>("Adam", AdamOptions(0.01).amsgrad(true).betas({0.8, 0.99})),
          kind<AdamW>("AdamW", AdamWOptions(0.01).weight_decay(0.2)),
          kind<RMSprop>("RMSprop", RMSpropOptions(0.01).centered(true).momentum(0.5)),
          kind<Adagrad>("Adagrad", AdagradOptions(0.01).lr_decay(0.1)),
          {"LBFGS", [](const Parameters& p) -> std::unique_ptr<Optimizer> {
             // Contiguous ones of one type: LBFGS puts the gradients into one tensor.
             return std::make_unique<LBFGS>(Parameters(p.begin(), p.begin() + 2), LBFGSOptions(0.1).max_iter(3));
           }}};
}

class OptimizerBytes : public ::testing::TestWithParam<Kind> {};
INSTANTIATE_TEST_SUITE_P(Kinds, OptimizerBytes, ::testing::ValuesIn(kinds()),
                         [](const auto& info) { return info.param.name; });

void expect_equal(const Parameters& a, const Parameters& b) {
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(torch::equal(a[i], b[i])) << "parameter " << i;
}

TEST_P(OptimizerBytes, AResumedOptimizerTakesTheSameStepsBitForBit) {
  const Parameters parameters = make_parameters(), resumed = make_parameters();
  const auto optimizer = GetParam().make(parameters), fresh = GetParam().make(resumed);
  run(*optimizer, parameters, 4);
  const double lr = optimizer->param_groups()[0].options().get_lr() / 3;
  optimizer->param_groups()[0].options().set_lr(lr);
  run(*fresh, resumed, 2);  // a past of its own, which must go
  {
    at::NoGradGuard no_grad;
    for (std::size_t i = 0; i < resumed.size(); ++i) at::Tensor(resumed[i]).copy_(parameters[i]);
  }
  optimizer_from_bytes(*fresh, optimizer_to_bytes(*optimizer));
  EXPECT_EQ(fresh->param_groups()[0].options().get_lr(), lr);
  EXPECT_EQ(fresh->state().size(), optimizer->state().size());
  run(*optimizer, parameters, 5);
  run(*fresh, resumed, 5);
  expect_equal(parameters, resumed);
}

TEST_P(OptimizerBytes, ACopyKeepsTheStateWhileTheOptimizerContinues) {
  const Parameters parameters = make_parameters(), resumed = make_parameters();
  const auto optimizer = GetParam().make(parameters), fresh = GetParam().make(resumed);
  OptimizerCopy copy = OptimizerCopy::of(*optimizer);  // before there is any state
  for (int round = 0; round < 3; ++round) {            // the second round reuses memory
    run(*optimizer, parameters, 2);
    {
      at::NoGradGuard no_grad;
      for (std::size_t i = 0; i < resumed.size(); ++i) at::Tensor(resumed[i]).copy_(parameters[i]);
    }
    copy = OptimizerCopy::of(*optimizer, std::move(copy));
    run(*optimizer, parameters, 3);
    optimizer_from_bytes(*fresh, copy.to_bytes());
    run(*fresh, resumed, 3);
    expect_equal(parameters, resumed);
  }
}

TEST(OptimizerState, TheStateOfAFreshOptimizerReplacesAUsedOnes) {
  const Parameters a = make_parameters(), b = make_parameters();
  torch::optim::Adam fresh(a), used(b);
  run(used, b, 2);
  optimizer_from_bytes(used, optimizer_to_bytes(fresh));
  EXPECT_TRUE(used.state().empty());
}

TEST(OptimizerState, WhatDoesNotFitIsRefusedAndChangesNothing) {
  const Parameters parameters = make_parameters();
  torch::optim::Adam adam(parameters);
  run(adam, parameters, 2);
  const std::size_t states = adam.state().size();
  torch::optim::Adam smaller(Parameters{parameters[0]});
  for (const std::string& bytes : {optimizer_to_bytes(smaller), std::string("rubbish"), std::string()}) {
    try {
      optimizer_from_bytes(adam, bytes);
      ADD_FAILURE() << "should have thrown";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), StatusCode::invalid_argument);
      EXPECT_THAT(error.what(), ::testing::HasSubstr("does not fit this torch::optim::Adam"));
    }
    EXPECT_EQ(adam.state().size(), states);
  }
}

TEST(RngState, TheSameNumbersFollow) {
  torch::manual_seed(11);
  torch::randn({7});  // leaves half of a pair of normal numbers behind
  const std::string bytes = rng_to_bytes();
  const at::Tensor first = torch::randn({5}), second = torch::rand({5});
  rng_from_bytes(bytes);
  EXPECT_TRUE(torch::equal(torch::randn({5}), first));
  EXPECT_TRUE(torch::equal(torch::rand({5}), second));
  EXPECT_THROW(rng_from_bytes("short"), Error);
}

}  // namespace
}  // namespace lockstep::checkpoint
