// Cases of pytorch_parity.md that are easily overlooked, and those in which Lockstep refuses what PyTorch allows.
#include <map>
#include <sstream>

#include <torch/csrc/autograd/functions/basic_ops.h>
#include "ddp/parity.h"
#include "ddp/torch_compat.h"
#include "lockstep/ddp/collectives.h"
#include "lockstep/ddp/data_parallel.h"
#include "lockstep/ddp/sync_batch_norm.h"

namespace lockstep::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using torch::nn::Linear;

// Returns both, in a tuple or a map; the loss may use only the second.
template <bool in_map>
struct TwoOutputsImpl : torch::nn::Module {
  TwoOutputsImpl() {
    a = register_module("a", without_bias(10, 10));
    b = register_module("b", without_bias(10, 10));
  }
  auto forward(const at::Tensor& x) {
    if constexpr (in_map) {
      return std::map<std::string, at::Tensor>{{"a", a(x)}, {"b", b(x)}};
    } else {
      return std::tuple(a(x), b(x));
    }
  }
  Linear a{nullptr}, b{nullptr};
};

template <bool in_map>
void expect_unused_outputs_work(bool view) {
  expect_average(
      2, {.find_unused_parameters = true, .gradient_as_bucket_view = view},
      [] { return with_known_parameters(std::make_shared<TwoOutputsImpl<in_map>>()); },
      [](auto& model, int rank, int step) {
        const auto output = model.forward(batch(rank, {10, 10}, step));
        at::Tensor a, b;
        if constexpr (in_map) {
          a = output.at("a"), b = output.at("b");
        } else {
          std::tie(a, b) = output;
        }
        (step == 1 || step == 2 ? a.matmul(b).sum() : b.sum()).backward();
      },
      "", 6);
}

TEST(ParityCorners, AnOutputMayBeUnusedInTheLossWithASearch) {
  for (const bool view : kBoth) {
    expect_unused_outputs_work<false>(view);
    expect_unused_outputs_work<true>(view);
  }
}

// On one rank only: its share of the average is zero.
TEST(ParityCorners, AnOutputMayBeUnusedInTheLossOfOneRank) {
  expect_average(
      2, {.find_unused_parameters = true},
      [] { return with_known_parameters(std::make_shared<TwoOutputsImpl<false>>()); },
      [](auto& model, int rank, int step) {
        auto [a, b] = model.forward(batch(rank, {10, 10}, step));
        (rank == 0 ? a.matmul(b).sum() : b.sum()).backward();
      });
}

at::Tensor through_undefined_gradient(const at::Tensor& x) {
  auto node = compat::make_node<torch::autograd::UndefinedGrad>();
  return (*node)({x})[0];
}

TEST(ParityCorners, UndefinedGradientsLeaveParametersWithoutGradients) {
  expect_average(
      2, {.find_unused_parameters = true},
      [] { return with_known_parameters(torch::nn::Sequential(Linear(2, 4), Linear(4, 4))); },
      [](auto& model, int rank, int step) {
        through_undefined_gradient(model.forward(batch(rank, {1, 2}, step)).sum()).backward();
      });
}

TEST(ParityCorners, ParametersOfDifferentLayoutsAreRefused) {
  const auto errors = errors_of_ranks(2, [](const Group& group) {
    torch::nn::Conv2d net(torch::nn::Conv2dOptions(4, 8, 3));
    if (group->rank() == 1) net->weight.set_data(net->weight.detach().contiguous(at::MemoryFormat::ChannelsLast));
    DistributedDataParallel ddp(net, {.process_group = group});
  });
  for (const std::string& error : errors) EXPECT_THAT(error, AllOf(HasSubstr("\"weight\""), HasSubstr("strides")));
}

TEST(ParityCorners, ParametersOfDifferentLayoutsGetRightGradientsOrAnError) {
  const auto pass = [](auto& model, int rank, int step) {
    model.forward(batch(rank, {1, 4, 5, 5}, step)).pow(2).sum().backward();
  };
  const auto make = [] { return with_known_parameters(torch::nn::Conv2d(torch::nn::Conv2dOptions(4, 8, 3))); };
  const Tensors expected = average_of_plain_models(2, make, pass, 0);
  errors_of_ranks(2, [&](const Group& group) {
    auto net = make();
    if (group->rank() == 1) net->weight.set_data(net->weight.detach().contiguous(at::MemoryFormat::ChannelsLast));
    DistributedDataParallel ddp(net, {.process_group = group});
    pass(ddp, group->rank(), 0);
    expect_gradients(gradients(net->parameters()), expected, "rank " + std::to_string(group->rank()));
  });
}

TEST(ParityCorners, TrainingContinuesFromAnArchiveLoadedIntoTheWrappedModule) {
  run_ranks(2, [](const Group& group) {
    const auto make = [] { return with_known_parameters(torch::nn::Sequential(Linear(2, 10), Linear(10, 4))); };
    auto interrupted = make(), straight = make();
    DistributedDataParallel ddp(interrupted, {.process_group = group}), other(straight, {.process_group = group});
    const auto train = [&](auto& model, int begin, int end) {
      torch::optim::SGD optimizer(model.module()->parameters(), 0.1);
      for (int step = begin; step < end; ++step) {
        optimizer.zero_grad();
        model.forward(batch(group->rank(), {3, 2}, step)).pow(2).mean().backward();
        optimizer.step();
      }
    };
    train(ddp, 0, 3);
    std::stringstream archive;
    torch::save(interrupted, archive);
    {
      at::NoGradGuard no_grad;
      for (at::Tensor& parameter : interrupted->parameters()) parameter.zero_();
    }
    torch::load(interrupted, archive);
    train(ddp, 3, 6);
    train(other, 0, 6);
    for (std::size_t i = 0; i < straight->parameters().size(); ++i) {
      EXPECT_TRUE(at::equal(interrupted->parameters()[i], straight->parameters()[i]))
          << i << " differs by " << (interrupted->parameters()[i] - straight->parameters()[i]).abs().max();
    }
    ddp.verify_in_sync();
  });
}

// Without running statistics, evaluation takes the batch's; it must not wait for the other rank.
TEST(ParityCorners, SyncBatchNormWithoutRunningStatisticsEvaluatesOnOneRank) {
  run_ranks(2, [](const Group& group) {
    SyncBatchNorm layer(torch::nn::BatchNormOptions(2).track_running_stats(false), group);
    DistributedDataParallel ddp(layer, {.process_group = group});
    ddp.forward(batch(group->rank(), {10, 2, 4, 4})).sum().backward();
    if (group->rank() == 0) {
      layer->eval();
      torch::nn::BatchNorm2d alone(torch::nn::BatchNormOptions(2).track_running_stats(false));
      alone->eval();
      const at::Tensor x = batch(0, {10, 2, 4, 4});
      at::NoGradGuard no_grad;
      EXPECT_TRUE(at::allclose(ddp.forward(x), alone(x), 1e-4, 1e-5));
    }
    barrier({.group = group});
  });
}

TEST(ParityCorners, SyncBatchNormTakesEmptyBatchesOnAllRanks) {
  run_ranks(2, [](const Group& group) {
    torch::nn::Sequential net(SyncBatchNorm(torch::nn::BatchNormOptions(2), group));
    DistributedDataParallel ddp(net, {.process_group = group});
    for (const bool with_gradient : kBoth) {
      const at::Tensor y = ddp.forward(at::zeros({0, 2, 11, 13}).requires_grad_(with_gradient));
      EXPECT_EQ(y.size(0), 0);
      y.sum().backward();
      for (const at::Tensor& parameter : net->parameters()) EXPECT_FALSE(parameter.grad().isnan().any().item<bool>());
      for (const at::Tensor& buffer : net->buffers()) EXPECT_FALSE(buffer.isnan().any().item<bool>());
    }
  });
}

struct ControlFlowImpl : torch::nn::Module {
  ControlFlowImpl() {
    first = register_module("first", without_bias(10, 10));
    second = register_module("second", without_bias(10, 10));
  }
  at::Tensor forward(const at::Tensor& x, bool with_second) { return with_second ? second(first(x)) : first(x); }
  Linear first{nullptr}, second{nullptr};
};
TORCH_MODULE(ControlFlow);

TEST(ParityCorners, AChangedStaticGraphIsReportedAsSuch) {
  for (const bool more : kBoth) {
    const auto errors = errors_of_ranks(2, [&](const Group& group) {
      ControlFlow net;
      DistributedDataParallel ddp(net, {.process_group = group, .static_graph = true});
      for (int step = 0; step < 4; ++step) {
        ddp.forward(batch(group->rank(), {4, 10}), more ? step > 0 : step == 0).sum().backward();
      }
    });
    for (const std::string& error : errors) EXPECT_THAT(error, AllOf(HasSubstr("second.weight"), HasSubstr("changed")));
  }
}

struct FourierImpl : torch::nn::Module {
  FourierImpl() { weight = register_parameter("weight", at::ones({4, 4, 8, 5}, at::kComplexFloat)); }
  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor spectrum = torch::fft::rfft2(x, at::IntArrayRef{8, 8}, {-2, -1}, "ortho");
    return torch::fft::irfft2(at::einsum("nchw,cohw->nohw", {spectrum, weight}), c10::nullopt, {-2, -1}, "ortho");
  }
  at::Tensor weight;
};
TORCH_MODULE(Fourier);

TEST(ParityCorners, ComplexParametersAreRefused) {
  for (const std::string& error : errors_of_ranks(2, [](const Group& group) {
         Fourier net;
         DistributedDataParallel ddp(net, {.process_group = group});
       })) {
    EXPECT_THAT(error, AllOf(HasSubstr("parameter \"weight\""), HasSubstr("ComplexFloat")));
  }
}

struct ComplexBufferImpl : torch::nn::Module {
  ComplexBufferImpl() {
    layer = register_module("layer", Linear(2, 2));
    buffer = register_buffer("buffer", at::zeros({3}, at::kComplexFloat));
  }
  at::Tensor forward(const at::Tensor& x) { return layer(x); }
  Linear layer{nullptr};
  at::Tensor buffer;
};
TORCH_MODULE(ComplexBuffer);

TEST(ParityCorners, ComplexBuffersAreRankZeros) {
  run_ranks(2, [](const Group& group) {
    ComplexBuffer net;
    net->buffer.fill_(c10::complex<float>(1.0F, 1.0F + static_cast<float>(group->rank())));
    DistributedDataParallel ddp(net, {.process_group = group});
    EXPECT_TRUE((at::imag(net->buffer) == 1).all().item<bool>()) << net->buffer;
  });
}

struct TrainedBufferImpl : torch::nn::Cloneable<TrainedBufferImpl> {
  TrainedBufferImpl() { reset(); }
  void reset() override { buffer = register_buffer("buffer", at::ones({4}).requires_grad_()); }
  at::Tensor forward(const at::Tensor& x) { return x * buffer; }
  at::Tensor buffer;
};
TORCH_MODULE(TrainedBuffer);

// PyTorch gives it one in DataParallel, and leaves it unsynchronised in DistributedDataParallel.
TEST(ParityCorners, ABufferThatNeedsAGradientIsRefused) {
  TrainedBuffer module;
  EXPECT_THROW(DataParallel(module, {.replicas = 2}), Error);
  for (const std::string& error : errors_of_ranks(2, [](const Group& group) {
         torch::nn::Sequential net(TrainedBuffer(), Linear(4, 1));
         DistributedDataParallel ddp(net, {.process_group = group});
       })) {
    EXPECT_THAT(error, AllOf(HasSubstr("buffer \"0.buffer\" needs a gradient"), HasSubstr("register_parameter")));
  }
}

}  // namespace
}  // namespace lockstep::testing
