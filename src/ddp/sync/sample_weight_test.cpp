// Where weights of samples must arrive: layers outside of forward(), collectives in a loss, other models, containers.
#include "ddp/sync/sample_weight.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "ddp/testing/error_of.h"
#include "ddp/testing/test_models.h"
#include "lockstep/ddp/distributed_data_parallel.h"
#include "lockstep/ddp/functional.h"
#include "lockstep/ddp/sync_batch_norm.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using namespace testing;  // ranks

// Rank 0 has five samples, rank 1 one.
std::int64_t samples_of(int rank) { return rank == 0 ? 5 : 1; }

at::Tensor samples(int rank, double shift = 0) {
  return torch::sin(torch::arange(samples_of(rank) * 4, at::kDouble) * 0.7 + 10.0 * rank + shift).view({-1, 4});
}
at::Tensor all_samples(double shift = 0) { return at::cat({samples(0, shift), samples(1, shift)}); }

// The same on all ranks, which are threads with one generator.
torch::nn::Linear make_layer(int inputs, int outputs) {
  torch::nn::Linear layer(inputs, outputs);
  layer->to(at::kDouble);
  at::NoGradGuard no_grad;
  for (at::Tensor& parameter : layer->parameters()) {
    parameter.copy_(torch::cos(torch::arange(parameter.numel(), at::kDouble)).view_as(parameter));
  }
  return layer;
}

TEST(SampleWeights, ALayerOutsideOfForwardIsAnErrorOnAllRanks) {
  const auto errors = errors_of_ranks(2, [](const Group& group) {
    torch::nn::Linear body = make_layer(4, 3), head = make_layer(3, 1);
    struct Net : torch::nn::Module {
      torch::nn::Linear body, head;
      Net(torch::nn::Linear b, torch::nn::Linear h) : body(std::move(b)), head(std::move(h)) {
        register_module("body", body);
        register_module("head", head);
      }
      at::Tensor forward(const at::Tensor& x) { return body(x); }
    };
    auto net = std::make_shared<Net>(body, head);
    DistributedDataParallel ddp(net, {.process_group = group, .sample_weighted = true});
    head(ddp(samples(group->rank()))).pow(2).mean().backward();
  });
  for (const std::string& error : errors) EXPECT_THAT(error, HasSubstr("before this backward reached the outputs"));
}

// The mean over all samples of (y - mean of all y)^2, with the mean from a differentiable collective.
struct CentredImpl : torch::nn::Module {
  explicit CentredImpl(Group of_ranks)
      : group(std::move(of_ranks)), layer(register_module("layer", make_layer(4, 3))) {}
  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor y = layer(x).tanh();
    const at::Tensor total = group ? functional::all_reduce(y.sum(0), {.group = group}) : y.sum(0);
    return y - total / 6;
  }
  Group group;
  torch::nn::Linear layer;
};
TORCH_MODULE(Centred);

TEST(SampleWeights, CountInDifferentiableCollectivesInForward) {
  Centred whole{Group()};
  whole(all_samples()).pow(3).mean().backward();
  const at::Tensor expected = whole->layer->weight.grad();
  run_ranks(2, [&](const Group& group) {
    Centred net(group);
    DistributedDataParallel ddp(net, {.process_group = group, .sample_weighted = true});
    ddp(samples(group->rank())).pow(3).mean().backward();
    EXPECT_TRUE(torch::allclose(net->layer->weight.grad(), expected)) << net->layer->weight.grad() << expected;
  });
}

TEST(SampleWeights, CountInDifferentiableCollectivesInTheLoss) {
  torch::nn::Linear whole = make_layer(4, 3);
  const at::Tensor y = whole(all_samples()).tanh();
  (y - y.sum(0) / 6).pow(3).mean().backward();
  run_ranks(2, [&](const Group& group) {
    torch::nn::Linear net = make_layer(4, 3);
    DistributedDataParallel ddp(net, {.process_group = group, .sample_weighted = true});
    const at::Tensor mine = ddp(samples(group->rank())).tanh();
    const at::Tensor total = functional::all_reduce(mine.sum(0), {.group = group});
    (mine - total / 6).pow(3).mean().backward();
    EXPECT_TRUE(torch::allclose(net->weight.grad(), whole->weight.grad())) << net->weight.grad();
  });
}

// The graph of the first model, which is weighted, exists while the second one runs.
TEST(SampleWeights, OfOneModelDoNotCountInAnother) {
  const auto make_net = [](const Group& group) {
    torch::nn::Sequential net(make_layer(4, 3), SyncBatchNorm(torch::nn::BatchNormOptions(3), group), make_layer(3, 1));
    net->to(at::kDouble);
    return net;
  };
  run_ranks(2, [&](const Group& group) {
    const auto gradient = [&](bool beside_another) {
      torch::nn::Sequential first = make_net(group), second = make_net(group);
      DistributedDataParallel weighted(first, {.process_group = group, .sample_weighted = true});
      DistributedDataParallel plain(second, {.process_group = group});
      at::Tensor other;
      if (beside_another) other = weighted(samples(group->rank(), 3));
      plain(samples(group->rank())).pow(2).sum().backward();
      if (beside_another) other.pow(2).mean().backward();
      return second->parameters()[0].grad().clone();
    };
    EXPECT_TRUE(torch::allclose(gradient(true), gradient(false)));
  });
}

struct Opaque {
  at::Tensor inner;
};
struct Visible {
  at::Tensor inner;
};
template <typename F>
void for_each_tensor(const Visible& value, F&& visit) {
  visit(value.inner);
}

TEST(SampleCount, IsThatOfTheFirstTensorInWhateverHoldsIt) {
  const at::Tensor three = torch::zeros({3, 2}), seven = torch::zeros({7}), scalar = torch::zeros({});
  EXPECT_EQ(sample_count(three, seven), 3);
  EXPECT_EQ(sample_count(scalar, 2.5, "text", seven), 7);
  EXPECT_EQ(sample_count(std::vector<at::Tensor>{three}, seven), 3);
  EXPECT_EQ(sample_count(std::make_pair(1, three), seven), 3);
  EXPECT_EQ(sample_count(std::optional<at::Tensor>(three), seven), 3);
  EXPECT_EQ(sample_count(std::optional<at::Tensor>(), seven), 7);
  EXPECT_EQ(sample_count(std::map<std::string, at::Tensor>{{"a", three}}, seven), 3);
  EXPECT_EQ(sample_count(Visible{three}, seven), 3);
  EXPECT_EQ(sample_count(three, Opaque{seven}), 3);
  EXPECT_EQ(sample_count(Opaque{three}, seven), -1) << "the samples may be in it";
  EXPECT_EQ(sample_count(), -1);
}

}  // namespace
}  // namespace lockstep
