// What the tests of parity with PyTorch share: models and batches with known values, and the gradients that DDP
// should give for them. pytorch_parity.md lists PyTorch's tests and ours.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <string>
#include <vector>

#include "ddp/testing/test_models.h"
#include "lockstep/ddp/distributed_data_parallel.h"
#include "lockstep/ddp/hooks.h"

namespace lockstep::testing {

using Tensors = std::vector<at::Tensor>;

// Gives the parameters the same values on every rank and in every run.
template <typename Holder>
Holder with_known_parameters(Holder module) {
  at::NoGradGuard no_grad;
  double phase = 0;
  for (at::Tensor& parameter : module->parameters()) {
    phase += 1;
    parameter.copy_((at::arange(parameter.numel(), at::kDouble) * 0.7 + phase).sin().reshape(parameter.sizes()) * 0.3);
  }
  return module;
}

inline torch::nn::Linear without_bias(std::int64_t in, std::int64_t out) {
  return torch::nn::Linear(torch::nn::LinearOptions(in, out).bias(false));
}

// What a rank trains on in a step.
inline at::Tensor batch(int rank, at::IntArrayRef sizes, int step = 0) {
  const at::Tensor whole = at::empty(sizes);
  return (at::arange(whole.numel(), at::kFloat) * 0.37 + 1.3 * rank + 0.11 * step).cos().reshape(sizes);
}

inline void drop_gradients(const Tensors& parameters) {
  for (at::Tensor parameter : parameters) parameter.mutable_grad() = at::Tensor();
}

// The average over the ranks of what `pass(model, rank, step)` gives to a plain model; a rank without a gradient
// counts as zero; where no rank has one, it stays undefined.
template <typename Make, typename Pass>
Tensors average_of_plain_models(int ranks, const Make& make, const Pass& pass, int step) {
  Tensors sums;
  for (int rank = 0; rank < ranks; ++rank) {
    auto net = make();
    pass(*net, rank, step);
    const Tensors mine = gradients(net->parameters());
    sums.resize(mine.size());
    for (std::size_t i = 0; i < mine.size(); ++i) {
      if (mine[i].defined()) sums[i] = sums[i].defined() ? sums[i] + mine[i] / ranks : mine[i] / ranks;
    }
  }
  return sums;
}

inline void expect_gradients(const Tensors& actual, const Tensors& expected, const std::string& where,
                             double tolerance = 1e-5) {
  ASSERT_EQ(actual.size(), expected.size());
  for (std::size_t i = 0; i < actual.size(); ++i) {
    ASSERT_EQ(actual[i].defined(), expected[i].defined()) << "gradient " << i << ", " << where;
    if (!actual[i].defined()) continue;
    EXPECT_TRUE(torch::allclose(actual[i], expected[i], 1e-4, tolerance)) << "gradient " << i << ", " << where << ":\n"
                                                                          << actual[i] << "\nexpected\n"
                                                                          << expected[i];
  }
}

// Runs `pass` with DDP for some steps, and compares each step's gradients with average_of_plain_models(). Gradients
// are dropped before even steps and zeroed before odd ones.
template <typename Make, typename Pass>
void expect_average(int ranks, const DdpOptions& options, const Make& make, const Pass& pass,
                    const std::string& where = "", int steps = 3) {
  std::vector<Tensors> expected;
  for (int step = 0; step < steps; ++step) expected.push_back(average_of_plain_models(ranks, make, pass, step));
  run_ranks(ranks, [&](const Group& group) {
    auto net = make();
    DdpOptions mine = options;
    mine.process_group = group;
    DistributedDataParallel ddp(net, mine);
    for (int step = 0; step < steps; ++step) {
      if (step % 2 == 0) {
        drop_gradients(net->parameters());
      } else {
        for (const at::Tensor& gradient : gradients(net->parameters())) {
          if (gradient.defined()) gradient.zero_();
        }
      }
      pass(ddp, group->rank(), step);
      Tensors wanted = expected[static_cast<std::size_t>(step)];
      for (std::size_t i = 0; step % 2 != 0 && i < wanted.size(); ++i) {  // a gradient of zeros stays one
        const at::Tensor gradient = net->parameters()[i].grad();
        if (!wanted[i].defined() && gradient.defined()) wanted[i] = at::zeros_like(gradient);
      }
      expect_gradients(gradients(net->parameters()), wanted,
                       where + " step " + std::to_string(step) + " rank " + std::to_string(group->rank()));
    }
    ddp.verify_in_sync();
  });
}

// Both values of an option.
inline constexpr bool kBoth[] = {false, true};

}  // namespace lockstep::testing
