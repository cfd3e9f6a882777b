#include "lockstep/ddp/fused_optimizers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <limits>

#include "checkpoint/testing/test_folder.h"
#include "ddp/snapshot/optimizer_state.h"
#include "ddp/snapshot/state_hash.h"
#include "ddp/testing/fused_pairs.h"
#include "lockstep/base/status.h"
#include "lockstep/checkpoint/snapshot.h"

namespace lockstep::fused_test {
namespace {

using testing::all_pairs;
using ::testing::HasSubstr;
using testing::Pair;
using testing::Parameters;
using testing::random_parameters;
using testing::set_gradients;

// The largest |a - b| / (1 + |b|) over all elements.
double difference(const std::vector<Parameters>& a, const std::vector<Parameters>& b) {
  double largest = 0;
  for (std::size_t g = 0; g < a.size(); ++g) {
    for (std::size_t i = 0; i < a[g].size(); ++i) {
      const at::Tensor x = a[g][i].detach().to(at::kDouble), y = b[g][i].detach().to(at::kDouble);
      if (x.numel() == 0) continue;
      largest = std::max(largest, ((x - y).abs() / (1 + y.abs())).max().item<double>());
      if (!x.isfinite().all().item<bool>()) return std::numeric_limits<double>::infinity();
    }
  }
  return largest;
}

bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  return at::equal(a.detach().contiguous().view(at::kByte), b.detach().contiguous().view(at::kByte));
}
bool same_bits(const std::vector<Parameters>& a, const std::vector<Parameters>& b) {
  for (std::size_t g = 0; g < a.size(); ++g) {
    for (std::size_t i = 0; i < a[g].size(); ++i) {
      if (a[g][i].dim() == 0 ? !at::equal(a[g][i], b[g][i]) : !same_bits(a[g][i], b[g][i])) return false;
    }
  }
  return true;
}

void train(torch::optim::Optimizer& optimizer, const std::vector<Parameters>& parameters, std::uint64_t seed,
           std::int64_t begin, std::int64_t end) {
  for (std::int64_t step = begin; step < end; ++step) {
    set_gradients(parameters, seed * 1000 + static_cast<std::uint64_t>(step));
    optimizer.step();
  }
}

// docs/optimizers.md states these bounds.
double bound(at::ScalarType type) { return type == at::kDouble ? 1e-14 : 3e-6; }

TEST(FusedOptimizers, AgreeWithTorchOver50StepsOfRandomCases) {
  double largest[2] = {0, 0};
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    for (const Pair& pair : all_pairs(seed)) {
      for (const at::ScalarType type : {at::kDouble, at::kFloat}) {
        const auto ours = random_parameters(seed, type), theirs = random_parameters(seed, type);
        const auto fused = pair.make(ours, true), plain = pair.make(theirs, false);
        train(*fused, ours, seed, 0, 50);
        train(*plain, theirs, seed, 0, 50);
        const double error = difference(ours, theirs);
        ASSERT_LT(error, bound(type)) << pair.name << " " << type << " seed " << seed;
        largest[type == at::kDouble ? 0 : 1] = std::max(largest[type == at::kDouble ? 0 : 1], error);
      }
    }
  }
  std::printf("largest difference: f64 %.2g, f32 %.2g\n", largest[0], largest[1]);
}

TEST(FusedOptimizers, LionFollowsItsFormula) {
  const auto ours = random_parameters(3, at::kDouble), by_hand = random_parameters(3, at::kDouble);
  testing::Groups groups(ours.begin(), ours.end());
  optim::Lion lion(groups, optim::LionOptions(0.01).betas({0.8, 0.95}).weight_decay(0.1));
  std::vector<std::vector<at::Tensor>> averages;
  for (const Parameters& group : by_hand) {
    averages.emplace_back();
    for (const at::Tensor& parameter : group) averages.back().push_back(at::zeros_like(parameter.detach()));
  }
  for (std::uint64_t step = 0; step < 20; ++step) {
    set_gradients(ours, step);
    set_gradients(by_hand, step);
    lion.step();
    at::NoGradGuard no_grad;
    for (std::size_t g = 0; g < by_hand.size(); ++g) {
      for (std::size_t i = 0; i < by_hand[g].size(); ++i) {
        const at::Tensor x = by_hand[g][i].grad();
        if (!x.defined()) continue;
        at::Tensor w = by_hand[g][i].detach(), &m = averages[g][i];
        w.mul_(1 - 0.01 * 0.1).sub_((0.8 * m + 0.2 * x).sign() * 0.01);
        m = 0.95 * m + 0.05 * x;
      }
    }
  }
  EXPECT_LT(difference(ours, by_hand), 1e-12);
}

TEST(FusedOptimizers, AStateOfTorchContinuesHereAndBack) {
  for (std::uint64_t seed = 1; seed <= 6; ++seed) {
    for (const Pair& pair : all_pairs(seed)) {
      for (const bool fused_first : {false, true}) {
        const auto parameters = random_parameters(seed, at::kDouble), want = random_parameters(seed, at::kDouble);
        const auto first = pair.make(parameters, fused_first), second = pair.make(parameters, !fused_first);
        train(*first, parameters, seed, 0, 7);
        EXPECT_EQ(checkpoint::optimizer_kind(*first), checkpoint::optimizer_kind(*second));
        checkpoint::optimizer_from_bytes(*second, checkpoint::optimizer_to_bytes(*first));
        EXPECT_EQ(checkpoint::hash_of_optimizer(*first), checkpoint::hash_of_optimizer(*second));
        train(*second, parameters, seed, 7, 15);
        const auto reference = pair.make(want, false);
        train(*reference, want, seed, 0, 15);
        EXPECT_LT(difference(parameters, want), 1e-12) << pair.name << " seed " << seed << " fused " << fused_first;
      }
    }
  }
}

TEST(FusedOptimizers, ASnapshotOfTorchsAdamWContinuesHere) {
  const checkpoint::testing::TestFolder folder;
  torch::nn::Linear model(5, 3);
  const auto step = [&](torch::optim::Optimizer& optimizer) {
    optimizer.zero_grad();
    model(torch::ones({2, 5})).square().sum().backward();
    optimizer.step();
  };
  torch::optim::AdamW plain(model->parameters(), 0.01);
  step(plain);
  checkpoint::Snapshots snapshots(folder.path(), {.alone = true});
  checkpoint::State saved{.model = *model, .optimizer = plain, .step = 1};
  snapshots.save(saved);
  step(plain);
  const at::Tensor want = model->weight.detach().clone();
  optim::AdamW fused(model->parameters(), 0.5);
  checkpoint::State loaded{.model = *model, .optimizer = fused};
  ASSERT_TRUE(snapshots.load(loaded).has_value());
  EXPECT_EQ(fused.param_groups()[0].options().get_lr(), 0.01);
  step(fused);
  EXPECT_LT((model->weight - want).abs().max().item<double>(), 1e-6);
}

TEST(FusedOptimizers, HaveTheSameBitsForAnyNumberOfThreads) {
  const int before = at::get_num_threads();
  for (const Pair& pair : all_pairs(4)) {
    std::vector<std::vector<Parameters>> results;
    for (const int threads : {1, 2, 5}) {
      at::set_num_threads(threads);
      torch::manual_seed(1);
      results.push_back({{torch::randn({700, 1001}).requires_grad_(), torch::randn({13}).requires_grad_()},
                         {torch::randn({300'000}).requires_grad_()}});
      const auto optimizer = pair.make(results.back(), true);
      dynamic_cast<optim::FusedOptimizer&>(*optimizer).step_options().max_norm = 1;
      train(*optimizer, results.back(), 1, 0, 2);
    }
    EXPECT_TRUE(same_bits(results[0], results[1]) && same_bits(results[0], results[2])) << pair.name;
  }
  at::set_num_threads(before);
}

TEST(FusedOptimizers, ClipRemoveTheLossScaleAndAscend) {
  const auto make = [] { return torch::full({3}, 2.0, at::kDouble).requires_grad_(); };
  at::Tensor clipped = make(), plain = make();
  optim::SGD optimizer({clipped}, 1.0);
  optimizer.step_options() = {.loss_scale = 8, .max_norm = 1};
  const at::Tensor gradient = torch::tensor({3.0, 0.0, 4.0}, at::kDouble);
  clipped.mutable_grad() = gradient * 8;
  optimizer.step();
  EXPECT_DOUBLE_EQ(optimizer.last_step().gradient_norm.value(), 5);
  EXPECT_FALSE(optimizer.last_step().skipped);
  EXPECT_TRUE(at::equal(clipped.grad(), gradient * 8));  // unchanged
  plain.mutable_grad() = gradient.clone();
  torch::nn::utils::clip_grad_norm_(plain, 1);
  torch::optim::SGD torchs({plain}, 1.0);
  torchs.step();
  EXPECT_LT((clipped - plain).abs().max().item<double>(), 1e-12);

  at::Tensor up = make();
  optim::SGD ascending({up}, 1.0);
  ascending.step_options().maximize = true;
  up.mutable_grad() = gradient;
  ascending.step();
  EXPECT_FALSE(ascending.last_step().gradient_norm.has_value());
  EXPECT_EQ(up[2].item<double>(), 6);
}

TEST(FusedOptimizers, SkipAStepWithNonFiniteGradientsAltogether) {
  for (const float bad : {INFINITY, -INFINITY, NAN}) {
    at::Tensor w = torch::ones({5}).requires_grad_(), other = torch::ones({2}).requires_grad_();
    optim::Adam optimizer({w, other}, 0.1);
    optimizer.step_options().skip_nonfinite = true;
    w.mutable_grad() = torch::ones({5});
    other.mutable_grad() = torch::ones({2});
    optimizer.step();
    const auto hash = checkpoint::hash_of_optimizer(optimizer);
    const at::Tensor before = w.detach().clone();
    other.mutable_grad()[1] = bad;
    optimizer.step();
    EXPECT_TRUE(optimizer.last_step().skipped);
    EXPECT_TRUE(same_bits(w, before));
    EXPECT_EQ(checkpoint::hash_of_optimizer(optimizer), hash);
    other.mutable_grad()[1] = 1;
    optimizer.step();
    EXPECT_FALSE(optimizer.last_step().skipped);
    EXPECT_FALSE(same_bits(w, before));
  }
}

// bf16 has 8 bits: 1 + 0.001 is 1, so that torch's AdamW never moves the parameter.
TEST(FusedOptimizers, MasterWeightsKeepSmallUpdates) {
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf}) {
    at::Tensor w = torch::ones({100}, type).requires_grad_(), exact = torch::ones({100}).requires_grad_();
    optim::AdamW fused({w}, torch::optim::AdamWOptions(1e-4));
    torch::optim::AdamW plain({exact}, torch::optim::AdamWOptions(1e-4));
    for (int step = 0; step < 300; ++step) {
      w.mutable_grad() = torch::full({100}, 0.5, type);
      exact.mutable_grad() = torch::full({100}, 0.5);
      fused.step();
      plain.step();
    }
    EXPECT_TRUE(same_bits(w, exact.detach().to(type))) << type << w[0] << exact[0];
    EXPECT_LT(w[0].item<double>(), 0.98);
  }
}

TEST(FusedOptimizers, MasterWeightsAreSavedAndTorchLoadsTheState) {
  for (const Pair& pair : all_pairs(9)) {
    for (const at::ScalarType type : {at::kBFloat16, at::kHalf}) {
      const auto want = random_parameters(5, type), got = random_parameters(5, type);
      const auto whole = pair.make(want, true), first = pair.make(got, true), second = pair.make(got, true);
      train(*whole, want, 5, 0, 9);
      train(*first, got, 5, 0, 4);
      checkpoint::optimizer_from_bytes(*second, checkpoint::optimizer_to_bytes(*first));
      train(*second, got, 5, 4, 9);
      EXPECT_TRUE(same_bits(want, got)) << pair.name << " " << type;
      EXPECT_EQ(checkpoint::optimizer_to_bytes(*whole).size(), checkpoint::optimizer_to_bytes(*second).size());
      const auto plain = pair.make(got, false);
      checkpoint::optimizer_from_bytes(*plain, checkpoint::optimizer_to_bytes(*second));
    }
  }
}

TEST(FusedOptimizers, WhatElseWritesAParameterOverridesItsMasterWeight) {
  at::Tensor w = torch::ones({3}, at::kBFloat16).requires_grad_();
  optim::SGD optimizer({w}, 0.25);
  w.mutable_grad() = torch::ones({3}, at::kBFloat16);
  optimizer.step();
  {
    at::NoGradGuard no_grad;
    w.fill_(8);
  }
  optimizer.step();
  EXPECT_EQ(w[0].item<double>(), 7.75);
}

TEST(FusedOptimizers, CallTheClosureWithGradients) {
  at::Tensor w = torch::ones({2}).requires_grad_();
  optim::SGD optimizer({w}, 0.5);
  const auto version = w.unsafeGetTensorImpl()->version_counter().current_version();
  const torch::Tensor loss = optimizer.step([&] {
    optimizer.zero_grad();
    const at::Tensor sum = w.sum();
    sum.backward();
    return sum;
  });
  EXPECT_EQ(loss.item<double>(), 2);
  EXPECT_EQ(w[0].item<double>(), 0.5);
  EXPECT_GT(w.unsafeGetTensorImpl()->version_counter().current_version(), version);
}

template <typename Function>
void expect_refused(Function function, const std::string& words) {
  try {
    function();
    FAIL() << "not refused: " << words;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), StatusCode::invalid_argument);
    EXPECT_THAT(error.what(), HasSubstr(words));
  }
}

TEST(FusedOptimizers, RefuseWhatTheyCannotUpdate) {
  at::Tensor first = torch::ones({4}).requires_grad_(), w = torch::ones({4, 2}).requires_grad_();
  optim::Adam optimizer({first, w}, 0.1);
  first.mutable_grad() = torch::ones({4});
  w.mutable_grad() = torch::ones({4, 2}).to_sparse();
  expect_refused([&] { optimizer.step(); }, "sparse");
  w.mutable_grad() = torch::ones({4, 2});
  optimizer.step();
  const auto hash = checkpoint::hash_of_optimizer(optimizer);
  const at::Tensor before = first.detach().clone();
  w.mutable_grad() = at::Tensor();
  w.set_data(w.detach().to(at::kDouble));
  w.mutable_grad() = torch::ones({4, 2}, at::kDouble);
  expect_refused([&] { optimizer.step(); }, "was converted");
  EXPECT_EQ(checkpoint::hash_of_optimizer(optimizer), hash);  // the first parameter, too
  EXPECT_TRUE(same_bits(first, before));

  at::Tensor complex = torch::ones({2}, at::kComplexFloat).requires_grad_();
  optim::SGD of_complex({complex}, 0.1);
  complex.mutable_grad() = torch::ones({2}, at::kComplexFloat);
  expect_refused([&] { of_complex.step(); }, "ComplexFloat");
  optim::SGD twice({first, first}, 0.1);
  expect_refused([&] { twice.step(); }, "twice");
  optim::SGD scaled({first}, 0.1);
  scaled.step_options().loss_scale = 0;
  expect_refused([&] { scaled.step(); }, "loss_scale is 0");
  expect_refused([] { optim::Lion({torch::ones({1})}, optim::LionOptions(-1)); }, "lr is -1");
}

// Two threads would update the same elements.
TEST(FusedOptimizers, RefuseParametersThatShareMemory) {
  at::Tensor first = torch::ones({4, 2}).requires_grad_(), second = torch::ones({4, 2}).requires_grad_();
  second.set_data(first);
  first.mutable_grad() = second.mutable_grad() = torch::ones({4, 2});
  optim::AdamW optimizer({first, second}, 0.1);
  expect_refused([&] { optimizer.step(); }, "shares memory");
}

TEST(FusedOptimizers, WithoutGradientsAStepDoesNothing) {
  at::Tensor w = torch::ones({4}).requires_grad_();
  optim::AdamW optimizer({w}, 0.1);
  optimizer.step_options() = {.max_norm = 1, .skip_nonfinite = true};
  optimizer.step();
  EXPECT_EQ(optimizer.last_step().gradient_norm.value(), 0);
  EXPECT_TRUE(optimizer.state().empty());
}

}  // namespace
}  // namespace lockstep::fused_test
