#include "ddp/snapshot/optimizer_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>
#include <random>

#include "ddp/snapshot/rng_state.h"
#include "ddp/testing/test_optimizers.h"
#include "lockstep/base/status.h"

namespace lockstep::checkpoint {
namespace {

using lockstep::testing::Parameters;
using torch::optim::Optimizer;

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

using lockstep::testing::optimizer_kinds;
using lockstep::testing::TestOptimizer;

class OptimizerBytes : public ::testing::TestWithParam<TestOptimizer> {};
INSTANTIATE_TEST_SUITE_P(Kinds, OptimizerBytes, ::testing::ValuesIn(optimizer_kinds()),
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

Parameters short_parameters() {
  torch::manual_seed(6);
  Parameters parameters{torch::randn({5, 4}).to(torch::kBFloat16), torch::randn({3}).to(torch::kHalf),
                        torch::randn({2})};
  for (at::Tensor& parameter : parameters) parameter.requires_grad_();
  return parameters;
}

TEST(OptimizerState, MasterWeightsContinueBitForBit) {
  const Parameters parameters = short_parameters(), resumed = short_parameters();
  // Steps that are smaller than the parameters' precision: without the master weights they would be lost.
  optim::AdamW optimizer(parameters, torch::optim::AdamWOptions(1e-4)),
      fresh(resumed, torch::optim::AdamWOptions(1e-4));
  run(optimizer, parameters, 5);
  {
    at::NoGradGuard no_grad;
    for (std::size_t i = 0; i < resumed.size(); ++i) at::Tensor(resumed[i]).copy_(parameters[i]);
  }
  optimizer_from_bytes(fresh, optimizer_to_bytes(optimizer));
  EXPECT_EQ(optimizer_to_bytes(fresh), optimizer_to_bytes(optimizer));
  EXPECT_TRUE(content_of_optimizer(fresh).tensors.contains("state.0.master"));
  run(optimizer, parameters, 40);
  run(fresh, resumed, 40);
  expect_equal(parameters, resumed);
}

TEST(OptimizerState, APlainOptimizerIgnoresMasterWeights) {
  const Parameters parameters = short_parameters(), plain_parameters = short_parameters();
  optim::AdamW fused(parameters);
  torch::optim::AdamW plain(plain_parameters);
  run(fused, parameters, 2);
  optimizer_from_bytes(plain, optimizer_to_bytes(fused));
  EXPECT_EQ(plain.state().size(), 2u);
  EXPECT_FALSE(content_of_optimizer(plain).tensors.contains("state.0.master"));
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
      EXPECT_THAT(error.what(), ::testing::AnyOf(::testing::HasSubstr("does not fit this program's optimizer"),
                                                 ::testing::HasSubstr("the saved state of a torch::optim::Adam")));
    }
    EXPECT_EQ(adam.state().size(), states);
  }
}

// What is written, as a program can change it.
struct Written {
  explicit Written(const Optimizer& optimizer) {
    const OptimizerContent content = content_of_optimizer(optimizer);
    fields = content.fields;
    for (const auto& [name, tensor] : content.tensors) {
      infos[name] = {name, Dtype::f32, tensor.sizes().vec()};
      if (tensor.scalar_type() == at::kDouble) infos[name].dtype = Dtype::f64;
      if (tensor.scalar_type() == at::kLong) infos[name].dtype = Dtype::i64;
    }
  }
  std::string refusal(Optimizer& optimizer) const {
    try {
      IncomingOptimizer(optimizer, fields, infos, "it");
      return "accepted";
    } catch (const Error& error) {
      return error.what();
    }
  }
  Metadata fields;
  TensorInfos infos;
};

TEST(OptimizerState, EveryFieldAndTensorThatDiffersIsNamed) {
  using ::testing::AllOf;
  using ::testing::HasSubstr;
  const Parameters parameters = make_parameters();
  torch::optim::Adam adam(parameters);
  run(adam, parameters, 2);
  const Written written(adam);
  EXPECT_EQ(written.refusal(adam), "accepted");
  const auto refusal = [&](const std::function<void(Written&)>& change) {
    Written changed = written;
    change(changed);
    return changed.refusal(adam);
  };
  EXPECT_THAT(refusal([](Written& w) {
                w.infos["state.0.exp_avg"].shape = {4, 4};
              }),
              AllOf(HasSubstr("tensor \"state.0.exp_avg\" is Float [4, 4]"), HasSubstr("Float [4, 3]")));
  EXPECT_THAT(refusal([](Written& w) { w.infos["state.1.exp_avg_sq"].dtype = Dtype::i64; }),
              HasSubstr("tensor \"state.1.exp_avg_sq\" is Long [3]"));
  EXPECT_THAT(refusal([](Written& w) { w.infos.erase("state.2.exp_avg"); }),
              HasSubstr("tensor \"state.2.exp_avg\" is missing"));
  EXPECT_THAT(refusal([](Written& w) {
                w.infos["state.0.other"] = {"state.0.other", Dtype::f32, {4, 3}};
              }),
              HasSubstr("tensor \"state.0.other\" does not belong to it"));
  EXPECT_THAT(refusal([](Written& w) { w.fields["state.9"] = "Adam"; }), HasSubstr("\"state.9\" is not a field"));
  EXPECT_THAT(refusal([](Written& w) { w.fields.erase("group.0.lr"); }), HasSubstr("\"group.0.lr\" is missing"));
  EXPECT_THAT(refusal([](Written& w) { w.fields["state.0.step"] = "many"; }),
              HasSubstr("\"state.0.step\" is \"many\""));
  EXPECT_THAT(refusal([](Written& w) { w.fields["group.0.parameters"] = "5"; }),
              HasSubstr("\"group.0.parameters\" is \"5\", and \"4\" in this program"));
  EXPECT_THAT(refusal([](Written& w) { w.fields["kind"] = "torch::optim::SGD"; }), HasSubstr("\"kind\""));
}

// A list that is longer than the history would be used as an index.
TEST(OptimizerState, AHistoryThatIsTooLongIsRefused) {
  const Parameters parameters = make_parameters();
  torch::optim::LBFGS lbfgs(Parameters(parameters.begin(), parameters.begin() + 2),
                            torch::optim::LBFGSOptions(0.1).max_iter(3));
  run(lbfgs, parameters, 4);
  Written written(lbfgs);
  ASSERT_TRUE(written.infos.contains("state.0.old_dirs.1"));
  written.fields["group.0.history_size"] = "1";
  EXPECT_THAT(written.refusal(lbfgs), ::testing::HasSubstr("with a history_size of 1"));
  Written shorter(lbfgs);
  shorter.infos.erase("state.0.ro.1");
  EXPECT_NE(shorter.refusal(lbfgs), "accepted");
}

// Random changes of a state that was correct: it is refused with Error, or accepted and then usable.
TEST_P(OptimizerBytes, NoChangeOfTheBytesDoesMoreThanBeRefused) {
  const Parameters parameters = make_parameters();
  const auto optimizer = GetParam().make(parameters);
  run(*optimizer, parameters, 3);
  const std::string bytes = optimizer_to_bytes(*optimizer);
  const std::size_t head = std::min<std::size_t>(bytes.size(), 4096);
  std::mt19937 random(17);
  int refused = 0;
  for (int i = 0; i < 1500; ++i) {
    std::string changed = bytes;
    const int changes = 1 + static_cast<int>(random() % 3);
    for (int change = 0; change < changes; ++change) {
      const std::size_t at = random() % head;
      if (random() % 3 == 0) {
        changed[at] = static_cast<char>(changed[at] ^ (1 << (random() % 8)));
      } else {
        changed[at] = "0123456789-,.\"{}[] eax"[random() % 22];
      }
    }
    const Parameters others = make_parameters();
    const auto other = GetParam().make(others);
    const std::size_t states = other->state().size();
    try {
      optimizer_from_bytes(*other, changed);
    } catch (const Error&) {
      ++refused;
      EXPECT_EQ(other->state().size(), states);
    }
  }
  EXPECT_GT(refused, 500);
}

TEST(OptimizerState, OptionsThatTheProgramRefersToStayWhereTheyAre) {
  const Parameters a = make_parameters(), b = make_parameters();
  torch::optim::Adam from(a, torch::optim::AdamOptions(0.25)), to(b);
  auto& options = static_cast<torch::optim::AdamOptions&>(to.param_groups()[0].options());
  optimizer_from_bytes(to, optimizer_to_bytes(from));
  EXPECT_EQ(options.lr(), 0.25);
  EXPECT_EQ(&options, &to.param_groups()[0].options());
}

TEST(OptimizerState, AnOptimizerWithAClassOfItsOwnIsRefused) {
  struct OwnOptions : torch::optim::OptimizerCloneableOptions<OwnOptions> {};
  struct Own : torch::optim::Optimizer {
    explicit Own(const Parameters& parameters) : Optimizer(parameters, std::make_unique<OwnOptions>()) {}
    at::Tensor step(LossClosure) override { return {}; }
  };
  const Own own(make_parameters());
  try {
    content_of_optimizer(own);
    FAIL() << "should have thrown";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("State::values"));
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
