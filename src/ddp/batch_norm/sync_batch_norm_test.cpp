#include "lockstep/ddp/sync_batch_norm.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <sstream>

#include "ddp/testing/test_ranks.h"
#include "lockstep/ddp/collectives.h"
#include "lockstep/ddp/distributed_data_parallel.h"

namespace lockstep {
namespace {

using testing::run_ranks;
using torch::nn::BatchNormOptions;

constexpr std::int64_t kChannels = 5;

struct Case {
  std::vector<std::int64_t> samples;  // of each rank
  std::vector<std::int64_t> spatial;  // dimensions after (N, C)
  at::ScalarType dtype = at::kFloat;
  BatchNormOptions options = BatchNormOptions(kChannels);
  double mean = 0;

  int ranks() const { return static_cast<int>(samples.size()); }
  at::Tensor random(int seed) const {
    at::Generator generator = at::detail::createCPUGenerator(static_cast<std::uint64_t>(seed));
    std::vector<std::int64_t> shape{0, kChannels};
    for (std::int64_t count : samples) shape[0] += count;
    shape.insert(shape.end(), spatial.begin(), spatial.end());
    return at::randn(shape, generator, at::TensorOptions().dtype(at::kDouble)).to(dtype);
  }
  at::Tensor part(const at::Tensor& whole, int rank) const {
    std::int64_t begin = 0;
    for (int r = 0; r < rank; ++r) begin += samples[static_cast<std::size_t>(r)];
    return whole.narrow(0, begin, samples[static_cast<std::size_t>(rank)]).clone();
  }
};

// What a layer did in some steps on a batch.
struct Trace {
  std::vector<at::Tensor> outputs;
  std::vector<at::Tensor> input_gradients;
  at::Tensor weight_gradient, bias_gradient, running_mean, running_var, batches;
};

// `select`: the part of the whole batch that this layer sees.
template <typename Layer>
Trace train(Layer& layer, const Case& c, const std::function<at::Tensor(const at::Tensor&)>& select) {
  layer->to(c.dtype);
  if (c.options.affine()) {
    at::NoGradGuard no_grad;
    layer->weight.copy_(at::linspace(0.5, 1.5, kChannels, c.dtype));
    layer->bias.copy_(at::linspace(-1, 1, kChannels, c.dtype));
  }
  Trace trace;
  for (int step = 0; step < 3; ++step) {
    const at::Tensor input = select(c.random(step) * 2 + c.mean).requires_grad_();
    const at::Tensor output = layer->forward(input);
    (output * select(c.random(100 + step))).sum().backward();
    trace.outputs.push_back(output.detach());
    trace.input_gradients.push_back(input.grad());
  }
  trace.running_mean = layer->running_mean;
  trace.running_var = layer->running_var;
  trace.batches = layer->num_batches_tracked;
  if (c.options.affine()) {
    trace.weight_gradient = layer->weight.grad();
    trace.bias_gradient = layer->bias.grad();
  }
  return trace;
}

// torch's batch norm on the whole batch, in f64 if `exact`.
Trace reference(Case c, bool exact) {
  if (exact) c.dtype = at::kDouble;
  const auto everything = [](const at::Tensor& whole) { return whole.clone(); };
  if (c.spatial.size() == 2) {
    torch::nn::BatchNorm2d layer(c.options);
    return train(layer, c, everything);
  }
  if (c.spatial.size() == 3) {
    torch::nn::BatchNorm3d layer(c.options);
    return train(layer, c, everything);
  }
  torch::nn::BatchNorm1d layer(c.options);
  return train(layer, c, everything);
}

void expect_near(const at::Tensor& got, const at::Tensor& expected, double tolerance, const char* what) {
  ASSERT_EQ(got.defined(), expected.defined()) << what;
  if (!got.defined()) return;
  EXPECT_TRUE(at::allclose(got.to(at::kDouble), expected.to(at::kDouble), tolerance, tolerance))
      << what << "\ngot\n"
      << got << "\nexpected\n"
      << expected;
}

void expect_same_on_all_ranks(const at::Tensor& tensor, const std::shared_ptr<ProcessGroup>& group) {
  if (!tensor.defined()) return;
  at::Tensor first = tensor.detach().clone();
  broadcast(first, 0, {.group = group});
  EXPECT_TRUE(at::equal(first, tensor.detach())) << "rank " << group->rank();
}

void expect_equal_to_reference(Trace got, const Trace& expected, const Case& c,
                               const std::shared_ptr<ProcessGroup>& group) {
  const double tolerance = c.dtype == at::kDouble ? 1e-10 : 2e-5;
  for (std::size_t step = 0; step < got.outputs.size(); ++step) {
    expect_near(got.outputs[step], c.part(expected.outputs[step], group->rank()), tolerance, "output");
    expect_near(got.input_gradients[step], c.part(expected.input_gradients[step], group->rank()), tolerance,
                "input gradient");
  }
  expect_same_on_all_ranks(got.running_mean, group);
  expect_same_on_all_ranks(got.running_var, group);
  expect_near(got.running_mean, expected.running_mean, tolerance, "running mean");
  expect_near(got.running_var, expected.running_var, tolerance, "running variance");
  expect_near(got.batches, expected.batches, 0, "batches");
  if (!c.options.affine()) return;
  all_reduce(got.weight_gradient, {.group = group});
  all_reduce(got.bias_gradient, {.group = group});
  expect_near(got.weight_gradient, expected.weight_gradient, 10 * tolerance, "weight gradient");
  expect_near(got.bias_gradient, expected.bias_gradient, 10 * tolerance, "bias gradient");
}

std::vector<Case> cases() {
  return {
      {.samples = {4, 4}, .spatial = {}},
      {.samples = {3, 5, 2}, .spatial = {}, .dtype = at::kDouble},
      {.samples = {3, 5}, .spatial = {7}},
      {.samples = {2, 3, 4}, .spatial = {4, 3}},
      {.samples = {2, 3}, .spatial = {4, 3}, .dtype = at::kDouble},
      {.samples = {1, 2, 3}, .spatial = {2, 3, 4}},
      {.samples = {1, 1, 1}, .spatial = {}, .dtype = at::kDouble},  // one value on each rank
      {.samples = {0, 4}, .spatial = {3, 3}},                       // an empty batch
      {.samples = {3, 0, 2}, .spatial = {}, .dtype = at::kDouble},
      {.samples = {3, 4}, .spatial = {2, 2}, .options = BatchNormOptions(kChannels).affine(false)},
      {.samples = {3, 4}, .spatial = {2, 2}, .options = BatchNormOptions(kChannels).momentum(torch::nullopt)},
      {.samples = {3, 4}, .spatial = {2, 2}, .options = BatchNormOptions(kChannels).momentum(0.3).eps(0.01)},
      {.samples = {3, 4, 1}, .spatial = {2}, .options = BatchNormOptions(kChannels).track_running_stats(false)},
  };
}

TEST(SyncBatchNorm, EqualsTorchOnTheWholeBatch) {
  for (const Case& c : cases()) {
    const Trace expected = reference(c, false);
    run_ranks(c.ranks(), [&](const std::shared_ptr<ProcessGroup>& group) {
      SyncBatchNorm layer(c.options, group);
      const Trace got = train(layer, c, [&](const at::Tensor& whole) { return c.part(whole, group->rank()); });
      expect_equal_to_reference(got, expected, c, group);
    });
    ASSERT_FALSE(HasFailure()) << c.ranks() << " ranks, " << c.spatial.size() << " spatial dimensions";
  }
}

TEST(SyncBatchNorm, KeepsItsPrecisionFarFromZero) {
  const Case c{.samples = {40, 60}, .spatial = {4, 4}, .mean = 10000};
  const Trace exact = reference(c, true);
  run_ranks(2, [&](const std::shared_ptr<ProcessGroup>& group) {
    SyncBatchNorm layer(c.options, group);
    const Trace got = train(layer, c, [&](const at::Tensor& whole) { return c.part(whole, group->rank()); });
    // The squares of the values need 27 bits before the point: a sum of squares would have lost the variance.
    expect_near(got.running_var, exact.running_var, 1e-4, "running variance");
  });
}

TEST(SyncBatchNorm, IsTorchsInEvaluationAndInAGroupOfOne) {
  const at::Tensor input = at::randn({6, kChannels, 3});
  run_ranks(1, [&](const std::shared_ptr<ProcessGroup>& group) {
    SyncBatchNorm layer(kChannels, group);
    torch::nn::BatchNorm1d plain(kChannels);
    EXPECT_TRUE(at::equal(layer(input), plain(input)));
    layer->eval();
    plain->eval();
    EXPECT_TRUE(at::equal(layer(input), plain(input)));
  });
  run_ranks(2, [&](const std::shared_ptr<ProcessGroup>& group) {
    SyncBatchNorm layer(kChannels, group);
    torch::nn::BatchNorm1d plain(kChannels);
    layer->eval();
    plain->eval();
    if (group->rank() == 0) {  // no collective
      EXPECT_TRUE(at::equal(layer(input), plain(input)));
    }
  });
}

TEST(SyncBatchNorm, CommunicatesOnlyInTraining) {
  const at::Tensor input = at::randn({6, kChannels, 3});
  run_ranks(2, [&](const std::shared_ptr<ProcessGroup>& group) {
    const BatchNormOptions options = BatchNormOptions(kChannels).track_running_stats(false);
    SyncBatchNorm layer(options, group);
    torch::nn::BatchNorm1d plain(options);
    layer->eval();
    plain->eval();
    if (group->rank() == 0) {
      EXPECT_TRUE(at::equal(layer(input), plain(input)));
      EXPECT_EQ(layer(at::randn({0, kChannels, 3})).numel(), 0);
    }
    layer->train();
    const at::Tensor mine = input.narrow(0, 3 * group->rank(), 3);
    expect_near(layer(mine), plain(input).narrow(0, 3 * group->rank(), 3), 1e-5, "of both ranks together");
  });
}

TEST(SyncBatchNorm, ReportsWhatIsNotSupported) {
  run_ranks(2, [](const std::shared_ptr<ProcessGroup>& group) {
    SyncBatchNorm layer(kChannels, group);
    EXPECT_THROW(layer(at::randn({kChannels})), Error);
    EXPECT_THROW(layer(at::randn({4, kChannels + 1})), Error);
    EXPECT_THROW(layer(at::randn({4, kChannels}, at::kDouble)), Error);
    EXPECT_THROW(layer(at::randn({group->rank(), kChannels})), Error) << "one value on all ranks together";
    const at::Tensor input = at::randn({4, kChannels}).requires_grad_();
    const at::Tensor loss = layer(input).square().sum();
    EXPECT_THROW(loss.backward({}, true, /*create_graph=*/true), Error);
  });
}

// A model as people write them: typed members, modules in Sequentials in modules, two kinds of batch norm.
struct BlockImpl : torch::nn::Module {
  BlockImpl() { register_module("layers", layers); }
  at::Tensor forward(const at::Tensor& input) { return layers->forward(input); }
  torch::nn::Sequential layers{torch::nn::BatchNorm1d(8), torch::nn::ReLU()};
};
TORCH_MODULE(Block);

struct NetImpl : torch::nn::Module {
  NetImpl() {
    register_module("conv", conv);
    register_module("norm", norm);
    register_module("head", head);
  }
  at::Tensor forward(const at::Tensor& input) {
    return head->forward(norm(conv(input)).relu().flatten(1)).log_softmax(1);
  }
  torch::nn::Conv2d conv{torch::nn::Conv2dOptions(2, kChannels, 3)};
  torch::nn::BatchNorm2d norm{kChannels};
  torch::nn::Sequential head{torch::nn::Linear(kChannels * 16, 8), Block(), torch::nn::Linear(8, 3)};
};
TORCH_MODULE(Net);

void copy_parameters(const torch::nn::Module& from, torch::nn::Module& to) {
  at::NoGradGuard no_grad;
  for (const auto& item : from.named_parameters()) to.named_parameters()[item.key()].copy_(item.value());
}

TEST(ConvertSyncBatchNorm, TrainsAModelOfTypedMembersLikeOneProcess) {
  Net whole;
  whole->to(at::kDouble);
  Net start;
  start->to(at::kDouble);
  copy_parameters(*start, *whole);
  const at::Tensor data = at::randn({12, 2, 6, 6}, at::kDouble), target = at::randint(3, {12}, at::kLong);
  const auto train_net = [](auto& model, const auto& parameters, const at::Tensor& input, const at::Tensor& label) {
    torch::optim::SGD optimizer(parameters, torch::optim::SGDOptions(0.1).momentum(0.9));
    for (int step = 0; step < 5; ++step) {
      optimizer.zero_grad();
      torch::nll_loss(model.forward(input), label).backward();
      optimizer.step();
    }
  };
  train_net(*whole, whole->parameters(), data, target);
  run_ranks(3, [&](const std::shared_ptr<ProcessGroup>& group) {
    Net model;
    model->to(at::kDouble);
    copy_parameters(*start, *model);
    EXPECT_EQ(convert_sync_batchnorm(model, group), 2);
    DistributedDataParallel ddp(model, {.process_group = group, .broadcast_buffers = false});
    train_net(ddp, model->parameters(), data.narrow(0, 4 * group->rank(), 4), target.narrow(0, 4 * group->rank(), 4));
    ddp.verify_in_sync();
    for (const auto& item : whole->named_parameters()) {
      expect_near(model->named_parameters()[item.key()], item.value(), 1e-9, item.key().c_str());
    }
    for (const auto& item : whole->named_buffers()) {
      expect_near(model->named_buffers()[item.key()], item.value(), 1e-9, item.key().c_str());
    }
    // Evaluation does not communicate.
    model->eval();
    if (group->rank() == 0) {
      EXPECT_EQ(model->forward(data).size(0), 12);
    }
  });
}

// A batch norm is used in three steps of training, alone on all samples and converted on the ranks' shares; in between
// rank 0 evaluates.
void expect_trains_converted(const BatchNormOptions& options,
                             const std::function<void(torch::nn::BatchNorm1d&)>& change, const char* what) {
  Case c{.samples = {4, 2, 3}, .spatial = {}, .dtype = at::kDouble, .options = options};
  torch::nn::BatchNorm1d alone(options);
  const Trace expected = train(alone, c, [](const at::Tensor& whole) { return whole.clone(); });
  alone->eval();
  const at::Tensor evaluated = alone(c.random(7));
  run_ranks(c.ranks(), [&](const std::shared_ptr<ProcessGroup>& group) {
    torch::nn::BatchNorm1d layer(options);
    EXPECT_EQ(convert_sync_batchnorm(layer, group), 1) << what;
    change(layer);
    const auto mine = [&](const at::Tensor& whole) { return c.part(whole, group->rank()); };
    if (group->rank() == 0) {
      layer->eval();
      layer->to(at::kDouble);
      layer(c.random(9));
      layer->train();
    }
    const Trace got = train(layer, c, mine);
    for (std::size_t step = 0; step < got.outputs.size(); ++step) {
      expect_near(got.outputs[step], mine(expected.outputs[step]), 1e-9, what);
      expect_near(got.input_gradients[step], mine(expected.input_gradients[step]), 1e-9, what);
    }
    layer->eval();
    if (group->rank() == 0) expect_near(layer(c.random(7)), evaluated, 1e-9, what);
  });
}

TEST(ConvertSyncBatchNorm, WorksForEveryKindOfLayerAndCommunicatesOnlyInTraining) {
  const auto nothing = [](torch::nn::BatchNorm1d&) {};
  expect_trains_converted(BatchNormOptions(kChannels), nothing, "plain");
  expect_trains_converted(BatchNormOptions(kChannels).affine(false), nothing, "without parameters");
  expect_trains_converted(BatchNormOptions(kChannels).momentum(torch::nullopt), nothing, "cumulative average");
  expect_trains_converted(BatchNormOptions(kChannels).track_running_stats(false), nothing, "without statistics");
}

TEST(ConvertSyncBatchNorm, PersistsAfterTheLayersTensorsHaveChanged) {
  expect_trains_converted(
      BatchNormOptions(kChannels), [](torch::nn::BatchNorm1d& layer) { layer->to(at::kDouble); }, "another type");
  expect_trains_converted(
      BatchNormOptions(kChannels),
      [](torch::nn::BatchNorm1d& layer) { layer->weight = layer->weight.detach().to(at::kDouble).requires_grad_(); },
      "a new weight");
}

TEST(ConvertSyncBatchNorm, LeavesOtherBatchNormsAlone) {
  const at::Tensor input = at::randn({6, kChannels});
  run_ranks(2, [&](const std::shared_ptr<ProcessGroup>& group) {
    torch::nn::BatchNorm1d before(kChannels), converted(kChannels), other(kChannels);
    const at::Tensor expected = before(input);
    EXPECT_EQ(convert_sync_batchnorm(converted, group), 1);
    EXPECT_TRUE(at::equal(other(input), expected));
    torch::nn::Linear none(2, 2);
    EXPECT_EQ(convert_sync_batchnorm(*none, group), 0);
  });
}

// A rank's gradients depend on the other ranks' losses, which have weights of their own.
TEST(SyncBatchNorm, InDdpWithWeightedSamplesEqualsOneProcessWithTheWholeBatch) {
  const std::vector<std::int64_t> begin = {0, 2, 2, 7};  // rank 1 has none
  at::Generator generator = at::detail::createCPUGenerator(3);
  const at::Tensor whole = at::randn({7, 4}, generator);
  run_ranks(3, [&](const std::shared_ptr<ProcessGroup>& group) {
    for (const bool converted : {false, true}) {
      torch::nn::Linear linear(4, kChannels);
      torch::nn::Sequential model(linear);
      if (converted) {
        model->push_back(torch::nn::BatchNorm1d(kChannels));
        convert_sync_batchnorm(model, group);
      } else {
        model->push_back(SyncBatchNorm(kChannels, group));
      }
      DistributedDataParallel ddp(model, {.process_group = group, .sample_weighted = true});
      const std::int64_t first = begin[static_cast<std::size_t>(group->rank())];
      const at::Tensor part = whole.narrow(0, first, begin[static_cast<std::size_t>(group->rank()) + 1] - first);
      const at::Tensor weight = linear->weight.detach().clone().requires_grad_();
      torch::nn::BatchNorm1d layer(kChannels);
      layer(at::linear(whole, weight, linear->bias.detach())).pow(3).mean().backward();
      for (int step = 0; step < 2; ++step) {
        for (const at::Tensor& parameter : model->parameters()) parameter.mutable_grad() = at::Tensor();
        ddp(part).pow(3).mean().backward();
        EXPECT_TRUE(at::allclose(linear->weight.grad(), weight.grad(), 1e-4, 1e-6))
            << linear->weight.grad() << weight.grad();
        EXPECT_TRUE(at::allclose(model->named_parameters()["1.weight"].grad(), layer->weight.grad(), 1e-4, 1e-6));
      }
    }
  });
}

TEST(ConvertSyncBatchNorm, ReportsWhatIsNotSupported) {
  torch::nn::BatchNorm1d layer(kChannels);
  run_ranks(2, [&](const std::shared_ptr<ProcessGroup>& group) {
    torch::nn::Sequential model(
        torch::nn::BatchNorm1d(BatchNormOptions(kChannels).affine(false).track_running_stats(false)));
    EXPECT_THROW(convert_sync_batchnorm(model, group), Error);
    torch::nn::BatchNorm1dImpl local(BatchNormOptions(kChannels).track_running_stats(false));
    EXPECT_THROW(convert_sync_batchnorm(local, group), Error) << "nothing shows whether it is in training";
    if (group->rank() == 0) {
      convert_sync_batchnorm(layer, group);
    } else {
      convert_sync_batchnorm(*torch::nn::BatchNorm1d(kChannels), group);
    }
  });
  EXPECT_THROW(layer(at::randn({4, kChannels})), Error) << "its group is gone";
  layer->eval();
  EXPECT_NO_THROW(layer(at::randn({4, kChannels})));
}

// Two layers of one shape, of which each rank runs one.
template <typename Layer>
struct BranchesImpl : torch::nn::Module {
  BranchesImpl(const Layer& of_first, const Layer& of_second) : first(of_first), second(of_second) {
    register_module("first", first);
    register_module("second", second);
  }
  at::Tensor forward(const at::Tensor& x, bool use_first) { return use_first ? first(x) : second(x); }
  Layer first, second;
};

TEST(SyncBatchNorm, RanksThatRunDifferentLayersGetAnError) {
  if (testing::test_backend() != "lockstep")
    GTEST_SKIP() << "only Lockstep's engine notices that ranks call different operations";
  const auto train = [](const auto& model, const std::shared_ptr<ProcessGroup>& group) {
    DistributedDataParallel ddp(model, {.process_group = group, .find_unused_parameters = true});
    ddp(at::randn({4, kChannels}), group->rank() == 0).pow(3).sum().backward();
  };
  const auto made = testing::errors_of_ranks(2, [&](const std::shared_ptr<ProcessGroup>& group) {
    train(
        std::make_shared<BranchesImpl<SyncBatchNorm>>(SyncBatchNorm(kChannels, group), SyncBatchNorm(kChannels, group)),
        group);
  });
  const auto converted = testing::errors_of_ranks(2, [&](const std::shared_ptr<ProcessGroup>& group) {
    using torch::nn::BatchNorm1d;
    auto model = std::make_shared<BranchesImpl<BatchNorm1d>>(BatchNorm1d(kChannels), BatchNorm1d(kChannels));
    convert_sync_batchnorm(*model, group);
    train(model, group);
  });
  for (const auto& errors : {made, converted}) {
    for (const std::string& error : errors) EXPECT_THAT(error, ::testing::HasSubstr("different operations"));
  }
}

TEST(SyncBatchNorm, RanksWhoseLossesGoThroughDifferentLayersGetAnError) {
  if (testing::test_backend() != "lockstep")
    GTEST_SKIP() << "only Lockstep's engine notices that ranks call different operations";
  const auto errors = testing::errors_of_ranks(2, [&](const std::shared_ptr<ProcessGroup>& group) {
    SyncBatchNorm first(kChannels, group), second(kChannels, group);
    const at::Tensor x = at::randn({4, kChannels});
    const at::Tensor a = first(x), b = second(x);
    (group->rank() == 0 ? a : b).pow(3).sum().backward();
  });
  for (const std::string& error : errors) EXPECT_THAT(error, ::testing::HasSubstr("different operations"));
}

}  // namespace
}  // namespace lockstep
