// TorchScript modules are trained, saved, resumed, loaded and sent like those of torch::nn.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/script.h>
#include <torch/torch.h>

#include "checkpoint/testing/test_folder.h"
#include "ddp/elastic/elastic_state.h"
#include "ddp/testing/error_of.h"
#include "ddp/testing/test_models.h"
#include "lockstep/checkpoint/snapshot.h"
#include "lockstep/ddp/distributed_data_parallel.h"
#include "lockstep/ddp/weights.h"
#include "lockstep/elastic/run.h"

namespace lockstep {
namespace {

using namespace testing;  // the model, its data and its ranks
using checkpoint::testing::TestFolder;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// As testing::Net: a weight of more than 1 MiB, small ones beside it, a submodule, and a buffer that forward changes.
torch::jit::Module script_net(double phase) {
  constexpr std::int64_t kWide = 640;
  const auto values = [phase](std::int64_t rows, std::int64_t columns) {
    return torch::arange(rows * columns).add(phase).sin().mul(0.05).reshape({rows, columns}).requires_grad_(true);
  };
  torch::jit::Module head("Head");
  head.register_parameter("weight", values(kWide, 3), false);
  head.define("def forward(self, x):\n  return torch.matmul(x, self.weight)\n");
  torch::jit::Module net("Net");
  net.register_attribute("training", c10::BoolType::get(), true);
  net.register_parameter("first", values(8, kWide), false);
  net.register_parameter("middle", values(kWide, kWide), false);
  net.register_buffer("mean", torch::full({kWide}, phase));
  net.register_module("head", head);
  net.define(R"(
def forward(self, x):
  x = torch.tanh(torch.matmul(x, self.first))
  if self.training:
    self.mean.mul_(0.9).add_(x.detach().mean(0), alpha=0.1)
  return self.head.forward(torch.tanh(torch.matmul(x, self.middle)))
)");
  return net;
}

bool equal_models(const NamedTensors& a, const NamedTensors& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const auto& one, const auto& other) {
    return one.first == other.first && one.second.equal(other.second);
  });
}

bool equal_models(const ModelView& a, const ModelView& b) {
  return equal_models(a.named_parameters(), b.named_parameters()) && equal_models(a.named_buffers(), b.named_buffers());
}

// Some steps of training without DDP.
void train_alone(torch::jit::Module& net, torch::optim::Optimizer& optimizer, int steps) {
  for (int step = 0; step < steps; ++step) {
    optimizer.zero_grad();
    loss_of(net.forward({inputs(6)}).toTensor(), targets(6)).backward();
    optimizer.step();
  }
}

TEST(ScriptModule, AViewHasTheNamesOfPythonsStateDict) {
  const torch::jit::Module net = script_net(0);
  const ModelView view(net);
  const auto names = [](const NamedTensors& tensors) {
    std::vector<std::string> result;
    for (const auto& item : tensors) result.push_back(item.first);
    return result;
  };
  EXPECT_THAT(names(view.named_parameters()), ElementsAre("first", "middle", "head.weight"));
  EXPECT_THAT(names(view.named_buffers()), ElementsAre("mean"));
  // The tensors are the module's.
  EXPECT_EQ(view.parameters()[0].data_ptr(), net.attr("first").toTensor().data_ptr());
}

// Several steps, because TorchScript's executor runs another graph from the third call on.
TEST(ScriptModule, GradientsAreThoseOfAveragingByHand) {
  run_ranks(2, [](const Group& group) {
    torch::jit::Module net = script_net(group->rank());  // rank 0's counts
    torch::jit::Module by_hand = script_net(0);
    DistributedDataParallel ddp(net, {.process_group = group});
    EXPECT_TRUE(equal_models(net, by_hand));
    torch::optim::SGD optimizer(ddp->parameters(), 0.1);
    const std::vector<at::Tensor> parameters = ModelView(by_hand).parameters();
    torch::optim::SGD optimizer_by_hand(parameters, 0.1);
    for (int step = 0; step < 5; ++step) {
      const at::Tensor x = share(inputs(8), group).add(step), y = share(targets(8), group);
      ddp->zero_grad();
      loss_of(ddp(x).toTensor(), y).backward();
      optimizer_by_hand.zero_grad();
      loss_of(by_hand.forward({x}).toTensor(), y).backward();
      for (const at::Tensor& parameter : parameters) group->all_reduce(parameter.grad(), {.op = ReduceOp::avg}).wait();
      expect_close(gradients(ddp->parameters()), gradients(parameters));
      optimizer.step();
      optimizer_by_hand.step();
    }
    ddp.verify_in_sync();  // bit for bit
    EXPECT_EQ(ddp.logging_data().steps, 5);
  });
}

TEST(ScriptModule, ArgumentsMayBeAList) {
  run_ranks(2, [](const Group& group) {
    torch::jit::Module net = script_net(0), whole = script_net(0);
    DistributedDataParallel ddp(net, {.process_group = group, .sample_weighted = true});
    const std::int64_t begin = group->rank() == 0 ? 0 : 2, end = group->rank() == 0 ? 2 : 8;
    const std::vector<c10::IValue> list = {inputs(8).slice(0, begin, end)};
    loss_of(ddp.forward(list).toTensor(), targets(8).slice(0, begin, end)).backward();
    loss_of(whole.forward({inputs(8)}).toTensor(), targets(8)).backward();
    expect_close(gradients(ddp->parameters()), gradients(ModelView(whole).parameters()));
  });
}

TEST(ScriptModule, ModesAndNoSyncWork) {
  run_ranks(2, [](const Group& group) {
    torch::jit::Module net = script_net(0);
    DistributedDataParallel ddp(net, {.process_group = group});
    ddp.eval();
    EXPECT_FALSE(ddp->is_training());
    EXPECT_FALSE(net.is_training());
    ddp.train();
    const at::Tensor x = share(inputs(8), group), y = share(targets(8), group);
    {
      const auto no_sync = ddp.no_sync();
      loss_of(ddp(x).toTensor(), y).backward();
    }
    EXPECT_EQ(ddp.logging_data().steps, 0);
    loss_of(ddp(x).toTensor(), y).backward();
    torch::jit::Module whole = script_net(0);
    for (int i = 0; i < 2; ++i) loss_of(whole.forward({inputs(8)}).toTensor(), targets(8)).backward();
    expect_close(gradients(ddp->parameters()), gradients(ModelView(whole).parameters()));
    ddp.zero_grad();
    for (const at::Tensor& parameter : ddp.parameters()) EXPECT_FALSE(parameter.grad().defined());
  });
}

TEST(ScriptModule, AReplacedParameterIsReported) {
  run_ranks(1, [](const Group& group) {
    torch::jit::Module net = script_net(0);
    DistributedDataParallel ddp(net, {.process_group = group});
    net.setattr("first", torch::zeros({8, 640}).requires_grad_(true));
    EXPECT_THAT(error_of([&] { ddp(inputs(2)); }), HasSubstr("parameter \"first\" was replaced"));
  });
}

TEST(ScriptModule, ASnapshotResumes) {
  const TestFolder folder;
  torch::jit::Module net = script_net(0);
  torch::optim::Adam optimizer(ModelView(net).parameters(), torch::optim::AdamOptions(0.01));
  checkpoint::State state{.model = net, .optimizer = optimizer};
  train_alone(net, optimizer, 4);
  state.step = 4;
  checkpoint::Snapshots snapshots(folder.path(), {.alone = true});
  snapshots.save(state);
  train_alone(net, optimizer, 3);

  torch::jit::Module again = script_net(1);
  torch::optim::Adam optimizer_again(ModelView(again).parameters(), torch::optim::AdamOptions(0.5));
  checkpoint::State resumed{.model = again, .optimizer = optimizer_again};
  train_alone(again, optimizer_again, 4);  // the executor has optimised both graphs
  ASSERT_TRUE(snapshots.load(resumed).has_value());
  EXPECT_EQ(resumed.step, 4);
  train_alone(again, optimizer_again, 3);
  EXPECT_TRUE(equal_models(net, again));

  torch::jit::Module other("Other");
  other.register_parameter("first", torch::zeros({2}).requires_grad_(true), false);
  checkpoint::State different{.model = other};
  EXPECT_THAT(error_of([&] { snapshots.load(different); }), HasSubstr("is of another model"));
}

TEST(ScriptModule, WeightsGoBothWays) {
  const TestFolder folder;
  for (const char* name : {"w.safetensors", "w.pt"}) {
    const torch::jit::Module net = script_net(2);
    save_weights(net, folder.path(name));
    torch::jit::Module again = script_net(0);
    EXPECT_THAT(load_weights(again, folder.path(name)).loaded, ElementsAre("first", "head.weight", "mean", "middle"));
    EXPECT_TRUE(equal_models(net, again)) << name;
  }
}

TEST(ScriptModule, AnElasticStateGoesBackToTheCommitAndToANewcomer) {
  run_ranks(2, [](const Group& group) {
    const bool newcomer = group->rank() == 1;
    torch::jit::Module net = script_net(newcomer ? 1 : 0);
    torch::optim::Adam optimizer(ModelView(net).parameters(), torch::optim::AdamOptions(0.01));
    elastic::State content{.model = net, .optimizer = optimizer};
    detail::ElasticState state(content, newcomer ? -1 : 0);
    if (!newcomer) {
      state.make_step([&] { train_alone(net, optimizer, 1); });
      state.commit_step();
      const at::Tensor committed = net.attr("mean").toTensor().clone();
      net.forward({inputs(4)});  // of a step that fails
      state.settle();
      EXPECT_TRUE(net.attr("mean").toTensor().equal(committed));
      EXPECT_FALSE(ModelView(net).parameters()[0].grad().defined());
    }
    state.transfer(*group, 0, {1});
    EXPECT_EQ(content.step, 1);
    at::Tensor hashes = at::empty({2}, at::kLong);
    const auto mine = static_cast<std::int64_t>(state.hash() ^ elastic::hash_of_parameters(net));
    group->all_gather(at::full({1}, mine, at::kLong), hashes, {}).wait();
    EXPECT_EQ(hashes[0].item<std::int64_t>(), hashes[1].item<std::int64_t>());
  });
}

TEST(ModelView, OfNamedTensorsHasThese) {
  const at::Tensor weight = torch::ones({2}), mean = torch::zeros({1});
  const ModelView view({{"weight", weight}, {"none", at::Tensor()}}, {{"mean", mean}});
  ASSERT_EQ(view.named_parameters().size(), 1U);  // undefined ones are left out
  EXPECT_EQ(view.named_parameters()[0].first, "weight");
  EXPECT_TRUE(view.buffers()[0].is_same(mean));
  const TestFolder folder;
  save_weights(view, folder.path("w.pt"));
  weight.fill_(7);
  EXPECT_TRUE(load_weights(view, folder.path("w.pt")).complete());
  EXPECT_EQ(weight[1].item<float>(), 1);
}

}  // namespace
}  // namespace lockstep
