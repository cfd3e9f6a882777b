// Gradients whose memory other tensors can see. The first tests pin what autograd leaves in the hook of an accumulator,
// since the rule rests on it; the others hold DDP against averages made by hand.
#include "ddp/sync/buckets/exclusive_memory.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "ddp/testing/test_models.h"
#include "ddp/torch_compat.h"
#include "lockstep/ddp/collectives.h"
#include "lockstep/ddp/distributed_data_parallel.h"
#include "lockstep/ddp/hooks.h"

namespace lockstep {
namespace {

using namespace testing;  // ranks

// Runs backward and returns whether `parameter`'s gradient was exclusive when it arrived.
bool arrives_exclusive(const at::Tensor& parameter, const std::function<at::Tensor()>& loss) {
  bool exclusive = false;
  const auto accumulator = compat::gradient_accumulator(parameter);
  accumulator->add_post_hook(std::make_unique<compat::PostHook>(
      [&](const at::Tensor& incoming) { exclusive = detail::is_exclusive(parameter.grad(), incoming); }));
  loss().backward();
  return exclusive;
}

at::Tensor parameter_of(at::IntArrayRef sizes) { return torch::randn(sizes).requires_grad_(true); }

TEST(ExclusiveMemory, IsWhatLayersLeave) {
  torch::nn::Linear linear(3, 4);
  const at::Tensor x = torch::randn({2, 3});
  EXPECT_TRUE(arrives_exclusive(linear->weight, [&] { return linear(x).sum(); })) << "a transposed view of a product";
  torch::nn::Conv2d conv(torch::nn::Conv2dOptions(2, 3, 3));
  EXPECT_TRUE(arrives_exclusive(conv->weight, [&] { return conv(torch::randn({1, 2, 5, 5})).sum(); }));
  torch::nn::Embedding embedding(5, 3);
  EXPECT_TRUE(arrives_exclusive(embedding->weight, [&] { return embedding(torch::tensor({1, 2})).sum(); }));
  const at::Tensor used_twice = parameter_of({3});
  EXPECT_TRUE(
      arrives_exclusive(used_twice, [&] { return (used_twice * torch::randn({3}) + used_twice.pow(2)).sum(); }));
}

TEST(ExclusiveMemory, IsWhatAccumulationLeaves) {
  torch::nn::Linear linear(3, 4);
  linear(torch::randn({2, 3})).sum().backward();
  EXPECT_TRUE(arrives_exclusive(linear->weight, [&] { return linear(torch::randn({2, 3})).sum(); }));
}

TEST(ExclusiveMemory, IsNotWhatAnotherBranchStillReads) {
  const at::Tensor a = parameter_of({2, 3}), b = parameter_of({3, 2});
  const auto loss = [&] { return ((a.view(-1) + b.view(-1)) * torch::randn({6})).sum(); };
  EXPECT_FALSE(arrives_exclusive(a, loss));
  EXPECT_FALSE(arrives_exclusive(b, loss));
  torch::nn::Embedding embedding(5, 3);
  const at::Tensor position = parameter_of({2, 3});
  EXPECT_FALSE(arrives_exclusive(position, [&] {
    const at::Tensor x = embedding(torch::tensor({{1, 2}}));
    return (x + position.unsqueeze(0)).pow(2).sum();
  }));
}

TEST(ExclusiveMemory, IsNotWhatTheProgramKeeps) {
  at::Tensor kept;
  at::Tensor weight = parameter_of({2, 3});
  EXPECT_FALSE(arrives_exclusive(weight, [&] {
    const at::Tensor flat = weight.view(-1);
    flat.register_hook([&](const at::Tensor& gradient) { kept = gradient; });
    return flat.pow(2).sum();
  }));
  weight = parameter_of({2, 3});
  weight.pow(2).sum().backward();
  const at::Tensor handle = weight.grad();
  EXPECT_FALSE(arrives_exclusive(weight, [&] { return weight.pow(2).sum(); })) << "two handles to one gradient";
  EXPECT_FALSE(detail::shares_memory(weight.grad())) << "which are to see the same values";
  const at::Tensor view = weight.grad().view(-1);
  EXPECT_TRUE(detail::shares_memory(weight.grad()));
}

// ---- DDP

constexpr std::int64_t kLarge = 1 << 19;  // elements: more than a bucket's worth, in a bucket of its own
constexpr std::int64_t kSmall = 6;

struct Options {
  std::int64_t size;
  bool sample_weighted = false;
  bool bucket_view = false;
  std::string hook = {};
};

std::vector<Options> all_options() {
  std::vector<Options> result;
  for (const std::int64_t size : {kSmall, kLarge}) {
    for (const bool view : {false, true}) {
      result.push_back({.size = size, .bucket_view = view});
      result.push_back({.size = size, .sample_weighted = true, .bucket_view = view});
      for (const char* hook : {"bf16", "fp16", "all_reduce", "int8", "power_sgd"}) {
        result.push_back({.size = size, .bucket_view = view, .hook = hook});
      }
    }
  }
  return result;
}

std::shared_ptr<CommHook> make_hook(const std::string& name) {
  if (name == "bf16") return bf16_compress_hook();
  if (name == "fp16") return fp16_compress_hook();
  if (name == "int8") return int8_compress_hook();
  if (name == "power_sgd") return power_sgd_hook({.start_iteration = 0});
  return all_reduce_hook();
}

// Two parameters whose gradients autograd leaves in one block of memory, and a third one computed from it afterwards.
struct AliasedImpl : torch::nn::Module {
  explicit AliasedImpl(std::int64_t size) {
    table = register_parameter("table", torch::linspace(-1, 1, size).view({size / 2, 2}));
    a = register_parameter("a", torch::linspace(0, 1, size).view({size / 2, 2}));
    b = register_parameter("b", torch::linspace(1, 2, size).view({2, size / 2}));
  }
  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor rows = torch::embedding(table, torch::arange(table.size(0)));
    rows.register_hook([this](const at::Tensor& gradient) { kept = gradient; });
    const at::Tensor sum = rows.view(-1) + a.view(-1) + b.view(-1);
    return (sum * x.mean()).pow(2).sum().view({1});
  }
  at::Tensor table, a, b, kept;
};
TORCH_MODULE(Aliased);

// Gradients by hand: weights[r] * rank r's own, summed.
std::vector<at::Tensor> by_hand(const Options& options, const std::vector<at::Tensor>& batches) {
  const auto ranks = static_cast<double>(batches.size());
  std::vector<at::Tensor> sums;
  double samples = 0;
  for (const at::Tensor& batch : batches) samples += static_cast<double>(batch.size(0));
  for (const at::Tensor& batch : batches) {
    Aliased net(options.size);
    net(batch).backward();
    const double weight = options.sample_weighted ? static_cast<double>(batch.size(0)) / samples : 1 / ranks;
    for (std::size_t i = 0; i < net->parameters().size(); ++i) {
      const at::Tensor part = net->parameters()[i].grad() * weight;
      if (sums.size() <= i) {
        sums.push_back(part);
      } else {
        sums[i] = sums[i] + part;
      }
    }
  }
  return sums;
}

TEST(SharedGradients, AreAveragedOnceWhateverSharesTheirMemory) {
  const std::vector<at::Tensor> batches = {torch::full({3, 1}, 1.0), torch::full({1, 1}, 3.0)};
  for (const Options& options : all_options()) {
    const std::vector<at::Tensor> expected = by_hand(options, batches);
    run_ranks(2, [&](const Group& group) {
      Aliased net(options.size);
      DistributedDataParallel ddp(net, {.process_group = group,
                                        .gradient_as_bucket_view = options.bucket_view,
                                        .sample_weighted = options.sample_weighted});
      if (!options.hook.empty()) ddp.register_comm_hook(make_hook(options.hook));
      const at::Tensor batch = batches[static_cast<std::size_t>(group->rank())];
      Aliased alone(options.size);
      alone(batch).backward();
      for (int step = 0; step < 3; ++step) {
        for (const at::Tensor& parameter : net->parameters()) parameter.mutable_grad() = at::Tensor();
        ddp(batch).backward();
        for (std::size_t i = 0; i < expected.size(); ++i) {
          const at::Tensor got = net->parameters()[i].grad();
          const double error = ((got - expected[i]).norm() / expected[i].norm()).item<double>();
          EXPECT_LT(error, options.hook == "power_sgd" ? 0.9
                           : options.hook.empty()      ? 1e-6
                                                       : 2e-2)
              << net->named_parameters()[i].key() << " of " << options.size << " elements, hook '" << options.hook
              << "', weighted " << options.sample_weighted << ", views " << options.bucket_view << ", step " << step;
        }
        EXPECT_TRUE(torch::equal(net->kept, alone->kept)) << "what a hook kept is this rank's own";
        if (options.size == kLarge && !options.sample_weighted) {  // a weight is applied to a copy
          EXPECT_GT(ddp.logging_data().copied_bytes, 0);
        }
      }
    });
    if (::testing::Test::HasFailure()) return;
  }
}

TEST(SharedGradients, AHandleThatTheProgramKeptSeesTheAverage) {
  for (const std::int64_t rows : {std::int64_t{2}, kLarge}) {
    run_ranks(2, [&](const Group& group) {
      torch::nn::Linear net(torch::nn::LinearOptions(1, rows).bias(false));
      DistributedDataParallel ddp(net, {.process_group = group});
      ddp(torch::full({1, 1}, 1.0 + group->rank())).sum().backward();
      const at::Tensor handle = net->weight.grad();
      handle.zero_();
      ddp(torch::full({1, 1}, 1.0 + group->rank())).sum().backward();
      EXPECT_TRUE((handle == 1.5).all().item<bool>());
      EXPECT_EQ(handle.data_ptr(), net->weight.grad().data_ptr());
    });
  }
}

TEST(SharedGradients, TheModelOfTheBenchmarkIsReducedWithoutACopy) {
  run_ranks(2, [](const Group& group) {
    torch::nn::Sequential net(torch::nn::Linear(512, 1024), torch::nn::ReLU(), torch::nn::Linear(1024, 1024));
    DistributedDataParallel ddp(net, {.process_group = group});
    for (int step = 0; step < 3; ++step) {
      for (const at::Tensor& parameter : net->parameters()) parameter.mutable_grad() = at::Tensor();
      ddp(torch::randn({4, 512})).sum().backward();
      EXPECT_EQ(ddp.logging_data().copied_bytes, 0);
    }
  });
}

}  // namespace
}  // namespace lockstep
