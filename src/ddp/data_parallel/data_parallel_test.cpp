#include "lockstep/ddp/data_parallel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <map>
#include <mutex>
#include <set>
#include <thread>

#include "lockstep/base/status.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using Tensors = std::vector<at::Tensor>;

torch::nn::Sequential make_mlp() {
  torch::manual_seed(1);
  return torch::nn::Sequential(torch::nn::Linear(6, 16), torch::nn::Tanh(), torch::nn::Linear(16, 3));
}

at::Tensor make_input(std::int64_t batch) {
  torch::manual_seed(2);
  return at::randn({batch, 6});
}

// Gradients of a loss that weighs every output differently; clears them.
template <typename M>
Tensors gradients_of(M& module, const at::Tensor& output) {
  (output * at::arange(1, output.numel() + 1, at::kFloat).view_as(output)).sum().backward();
  Tensors gradients;
  for (at::Tensor& parameter : module->parameters()) {
    gradients.push_back(parameter.grad().clone());
    parameter.mutable_grad() = at::Tensor();
  }
  return gradients;
}

void expect_close(const Tensors& a, const Tensors& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(at::allclose(a[i], b[i], 1e-4, 1e-5)) << i;
}

TEST(DataParallel, GivesTheModulesOutputsAndGradientsForAnyBatch) {
  torch::nn::Sequential model = make_mlp();
  DataParallel dp(model, {.replicas = 4});
  for (std::int64_t batch : {0, 1, 2, 3, 4, 5, 6, 8, 13}) {
    const at::Tensor input = make_input(batch);
    const at::Tensor expected = model->forward(input);
    const at::Tensor output = dp(input);
    EXPECT_EQ(output.sizes(), expected.sizes());
    EXPECT_TRUE(at::allclose(output, expected, 1e-5, 1e-6)) << batch;
    if (batch > 0) expect_close(gradients_of(model, output), gradients_of(model, expected));
  }
}

TEST(DataParallel, TrainsAsTheModuleDoes) {
  torch::nn::Sequential alone = make_mlp();
  torch::nn::Sequential shared = make_mlp();
  DataParallel dp(shared, {.replicas = 3});
  torch::optim::SGD alone_optimizer(alone->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  torch::optim::SGD shared_optimizer(dp->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  const at::Tensor target = at::ones({10, 3});
  const at::Tensor input = make_input(10);
  double first = 0;
  double last = 0;
  for (int step = 0; step < 20; ++step) {
    alone_optimizer.zero_grad();
    shared_optimizer.zero_grad();
    torch::mse_loss(alone->forward(input), target).backward();
    const at::Tensor loss = torch::mse_loss(dp(input), target);
    loss.backward();
    alone_optimizer.step();
    shared_optimizer.step();
    if (step == 0) first = loss.item<double>();
    last = loss.item<double>();
  }
  EXPECT_LT(last, first / 4);
  expect_close(alone->parameters(), shared->parameters());
}

TEST(DataParallel, GradientsReachTheInput) {
  torch::nn::Sequential model = make_mlp();
  DataParallel dp(model, {.replicas = 3});
  const at::Tensor leaf = make_input(7).set_requires_grad(true);
  const at::Tensor expected = torch::autograd::grad({model->forward(leaf * 2).pow(2).sum()}, {leaf})[0];
  EXPECT_TRUE(at::allclose(torch::autograd::grad({dp(leaf * 2).pow(2).sum()}, {leaf})[0], expected, 1e-4, 1e-5));
}

TEST(DataParallel, ReplicasRunInThreadsOfTheirOwn) {
  struct WitnessImpl : torch::nn::Cloneable<WitnessImpl> {
    void reset() override {}
    at::Tensor forward(const at::Tensor& x) {
      std::lock_guard lock(*mutex);
      seen->insert(std::this_thread::get_id());
      return x;
    }
    std::shared_ptr<std::mutex> mutex = std::make_shared<std::mutex>();
    std::shared_ptr<std::set<std::thread::id>> seen = std::make_shared<std::set<std::thread::id>>();
  };
  const auto witness = std::make_shared<WitnessImpl>();
  DataParallel dp(witness, {.replicas = 4});
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(at::equal(dp(at::arange(8)), at::arange(8)));
  EXPECT_EQ(witness->seen->size(), 4U);
  EXPECT_EQ(witness->seen->count(std::this_thread::get_id()), 0U);
}

// Several inputs, some not tensors, and outputs of several kinds.
struct ManyImpl : torch::nn::Cloneable<ManyImpl> {
  ManyImpl() { reset(); }
  void reset() override { linear = register_module("linear", torch::nn::Linear(4, 4)); }

  std::tuple<at::Tensor, std::vector<at::Tensor>, std::map<std::string, at::Tensor>, int> forward(
      const at::Tensor& a, const std::pair<at::Tensor, at::Tensor>& pair, const at::Tensor& scalar, double factor,
      const std::string& key) {
    const at::Tensor sum = linear(a + pair.first) * scalar * factor;
    return {sum, {sum * 2, pair.second + 1}, {{key, sum.mean()}}, 42};
  }
  torch::nn::Linear linear{nullptr};
};
TORCH_MODULE(Many);

TEST(DataParallel, TakesSeveralInputsAndReturnsStructures) {
  Many model;
  DataParallel dp(model, {.replicas = 2});
  const at::Tensor a = at::randn({6, 4});
  const std::pair<at::Tensor, at::Tensor> pair(at::randn({6, 4}), at::arange(6));
  const at::Tensor scalar = at::scalar_tensor(3.0F).set_requires_grad(true);
  const auto expected = model->forward(a, pair, scalar, 0.5, "mean");
  const auto output = dp(a, pair, scalar, 0.5, "mean");
  EXPECT_TRUE(at::allclose(std::get<0>(output), std::get<0>(expected)));
  EXPECT_TRUE(at::allclose(std::get<1>(output)[0], std::get<1>(expected)[0]));
  EXPECT_TRUE(at::equal(std::get<1>(output)[1], at::arange(6) + 1));
  EXPECT_FALSE(std::get<1>(output)[1].requires_grad());
  // One value per replica, which is what a loss computed inside looks like.
  const at::Tensor means = std::get<2>(output).at("mean");
  EXPECT_EQ(means.sizes(), at::IntArrayRef({2}));
  EXPECT_TRUE(at::allclose(means.mean(), std::get<2>(expected).at("mean")));
  EXPECT_EQ(std::get<3>(output), 42);

  const at::Tensor weight = model->linear->weight;
  const auto gradient = [&](const auto& result, const at::Tensor& wanted) {
    const at::Tensor loss = std::get<1>(result)[0].pow(2).sum() + std::get<2>(result).at("mean").mean();
    return torch::autograd::grad({loss}, {wanted}, {}, true)[0];
  };
  EXPECT_TRUE(at::allclose(gradient(output, weight), gradient(expected, weight), 1e-4, 1e-5));
  EXPECT_TRUE(at::allclose(gradient(output, scalar), gradient(expected, scalar), 1e-4, 1e-5));
}

TEST(DataParallel, InputsThatCannotBeSplitTogetherAreRefused) {
  Many model;
  DataParallel dp(model, {.replicas = 2});
  const at::Tensor one = at::scalar_tensor(1.0F);
  EXPECT_THROW(dp(at::randn({6, 4}), std::pair(at::randn({5, 4}), at::arange(5)), one, 0.5, "x"), Error);
  torch::nn::Identity identity;
  DataParallel same(identity, {.replicas = 2});
  EXPECT_THROW(same(one), Error);
  EXPECT_THROW(DataParallel(identity, {.replicas = -1}), Error);
}

TEST(DataParallel, BatchNormTakesReplicaZerosStatisticsInTrainingAndTheModulesInEval) {
  torch::nn::Sequential model(torch::nn::BatchNorm1d(6));
  torch::nn::Sequential reference(torch::nn::BatchNorm1d(6));
  DataParallel dp(model, {.replicas = 2});
  for (int step = 0; step < 3; ++step) {
    const at::Tensor input = make_input(8) * (step + 1) + step;
    const at::Tensor first = reference->forward(input.narrow(0, 0, 4));  // updates the reference's statistics
    EXPECT_TRUE(at::allclose(dp(input).narrow(0, 0, 4), first, 1e-4, 1e-5));
    expect_close(model->buffers(), reference->buffers());
  }
  const Tensors before = {model->buffers()[0].clone(), model->buffers()[1].clone(), model->buffers()[2].clone()};
  model->eval();
  reference->eval();
  EXPECT_TRUE(at::allclose(dp(make_input(7)), reference->forward(make_input(7)), 1e-4, 1e-5));
  expect_close(model->buffers(), before);
  model->train();
  dp(make_input(8));
  EXPECT_FALSE(at::equal(model->buffers()[0], before[0]));
}

TEST(DataParallel, PartsOfTheModuleMayBeInEvalMode) {
  torch::nn::Sequential model(torch::nn::Dropout(0.999), torch::nn::Linear(6, 3));
  DataParallel dp(model, {.replicas = 2});
  model->children()[0]->eval();
  EXPECT_TRUE(at::allclose(dp(make_input(6)), model->forward(make_input(6)), 1e-5, 1e-6));
}

TEST(DataParallel, FollowsNewParameterValuesAndFreezing) {
  torch::nn::Sequential model = make_mlp();
  DataParallel dp(model, {.replicas = 2});
  dp(make_input(4));
  model->parameters()[0].set_requires_grad(false);
  dp(make_input(4)).sum().backward();
  EXPECT_FALSE(model->parameters()[0].grad().defined());
  EXPECT_TRUE(model->parameters()[1].grad().defined());
  model->parameters()[0].set_requires_grad(true);
  model->to(at::kDouble);
  const at::Tensor input = make_input(4).to(at::kDouble);
  const at::Tensor output = dp(input);
  EXPECT_TRUE(at::allclose(output, model->forward(input)));
  output.sum().backward();
  EXPECT_EQ(model->parameters()[0].grad().scalar_type(), at::kDouble);
}

TEST(DataParallel, WithoutGradModeThereIsNoGraph) {
  torch::nn::Sequential model = make_mlp();
  DataParallel dp(model, {.replicas = 2});
  {
    torch::NoGradGuard no_grad;
    EXPECT_FALSE(dp(make_input(4)).requires_grad());
  }
  EXPECT_TRUE(dp(make_input(4)).requires_grad());
}

TEST(DataParallel, BackwardTwiceNeedsRetainGraph) {
  torch::nn::Sequential model = make_mlp();
  DataParallel dp(model, {.replicas = 2});
  const at::Tensor loss = dp(make_input(4)).sum();
  loss.backward({}, /*retain_graph=*/true);
  const at::Tensor once = model->parameters()[0].grad().clone();
  loss.backward();
  EXPECT_TRUE(at::allclose(model->parameters()[0].grad(), once * 2));
  EXPECT_THROW(loss.backward(), std::exception);
  EXPECT_THROW(torch::autograd::grad({dp(make_input(4)).sum()}, {model->parameters()[0]}, {}, true,
                                     /*create_graph=*/true),
               Error);
}

struct FailingImpl : torch::nn::Cloneable<FailingImpl> {
  void reset() override {}
  at::Tensor forward(const at::Tensor& x) {
    if (x.max().item<float>() > 5) throw std::runtime_error("a value above 5");
    return x;
  }
};
TORCH_MODULE(Failing);

TEST(DataParallel, AnExceptionNamesTheReplicaAndTheNextForwardWorks) {
  Failing model;
  DataParallel dp(model, {.replicas = 4});
  try {
    dp(at::arange(8, at::kFloat));
    FAIL() << "should have thrown";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("replica 3 of 4 failed in forward: a value above 5"));
  }
  EXPECT_TRUE(at::equal(dp(at::zeros({8})), at::zeros({8})));
  torch::nn::Sequential mlp = make_mlp();
  DataParallel of_mlp(mlp, {.replicas = 2});
  EXPECT_THROW(of_mlp(at::randn({4, 5})), Error);
}

TEST(DataParallel, AnExceptionInBackwardNamesTheReplicaToo) {
  struct HookedImpl : torch::nn::Cloneable<HookedImpl> {
    HookedImpl() { reset(); }
    void reset() override { linear = register_module("linear", torch::nn::Linear(6, 3)); }
    at::Tensor forward(const at::Tensor& x) {
      at::Tensor y = linear(x);
      if (x[0][0].item<float>() > 0) {
        y.register_hook([](const at::Tensor&) -> at::Tensor { throw std::runtime_error("no way back"); });
      }
      return y;
    }
    torch::nn::Linear linear{nullptr};
  };
  const auto module = std::make_shared<HookedImpl>();
  DataParallel dp(module, {.replicas = 2});
  at::Tensor input = at::zeros({4, 6});
  input[2].fill_(1);
  try {
    dp(input).sum().backward();
    FAIL() << "should have thrown";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("replica 1 of 2 failed in backward: no way back"));
  }
  EXPECT_NO_THROW(dp(at::zeros({4, 6})).sum().backward());
}

TEST(DataParallel, ALayerUsedTwiceAndOneNotUsed) {
  struct TiedImpl : torch::nn::Cloneable<TiedImpl> {
    TiedImpl() { reset(); }
    void reset() override {
      layer = register_module("first", torch::nn::Linear(6, 6));
      register_module("second", layer);
      unused = register_module("unused", torch::nn::Linear(2, 2));
    }
    at::Tensor forward(const at::Tensor& x) { return layer(at::tanh(layer(x))); }
    torch::nn::Linear layer{nullptr}, unused{nullptr};
  };
  const auto module = std::make_shared<TiedImpl>();
  DataParallel dp(module, {.replicas = 3});
  const at::Tensor input = make_input(7);
  module->forward(input).pow(2).sum().backward();
  const at::Tensor expected = module->layer->weight.grad().clone();
  module->layer->weight.mutable_grad() = at::Tensor();
  dp(input).pow(2).sum().backward();
  EXPECT_TRUE(at::allclose(module->layer->weight.grad(), expected, 1e-4, 1e-5));
  EXPECT_FALSE(module->unused->weight.grad().defined());
}

TEST(DataParallel, MakingReplicasDrawsNoRandomNumbers) {
  torch::nn::Sequential model = make_mlp();
  torch::manual_seed(5);
  const at::Tensor expected = at::randn({3});
  torch::manual_seed(5);
  DataParallel dp(model, {.replicas = 4});
  EXPECT_TRUE(at::equal(at::randn({3}), expected));
}

TEST(DataParallel, AsAFunctionAndItsGraphOutlivesTheReplicas) {
  torch::nn::Sequential model = make_mlp();
  const at::Tensor input = make_input(5);
  const at::Tensor output = data_parallel(model, input, 3);
  const at::Tensor expected = model->forward(input);
  EXPECT_TRUE(at::allclose(output, expected, 1e-5, 1e-6));
  expect_close(gradients_of(model, output), gradients_of(model, expected));
}

}  // namespace
}  // namespace lockstep
