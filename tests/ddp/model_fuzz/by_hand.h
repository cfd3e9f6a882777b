// For tests pasted from the fuzzer (print_cpp.h): the program without DDP, and the comparison with it.
#pragma once

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <string>
#include <vector>

#include "ddp/model_fuzz/replay.h"
#include "ddp/testing/test_models.h"
#include "lockstep/lockstep.h"

namespace lockstep::fuzz {

// Each parameter that needs a gradient, once.
inline std::vector<at::Tensor> trained(const torch::nn::Module& module) {
  std::vector<at::Tensor> result;
  for (const at::Tensor& parameter : module.parameters()) {
    bool seen = !parameter.requires_grad();
    for (const at::Tensor& other : result) seen = seen || other.is_same(parameter);
    if (!seen) result.push_back(parameter);
  }
  return result;
}

// Makes `to` a copy of `from`, gradients included.
inline void load(torch::nn::Module& to, const torch::nn::Module& from) {
  at::NoGradGuard no_grad;
  const auto parameters = from.parameters();
  auto copies = to.parameters();
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    copies[i].copy_(parameters[i]);
    copies[i].mutable_grad() = parameters[i].grad().defined() ? parameters[i].grad().clone() : at::Tensor();
  }
  for (std::size_t i = 0; i < from.buffers().size(); ++i) to.buffers()[i].copy_(from.buffers()[i]);
}

// Backward whose gradients are multiplied by `weight` (0 drops even NaN) before they are added to what is there.
inline void weighted_backward(const at::Tensor& loss, torch::nn::Module& module, double weight,
                              bool retain_graph = false) {
  std::vector<at::Tensor> before;
  for (at::Tensor& parameter : trained(module)) {
    before.push_back(parameter.grad());
    parameter.mutable_grad() = at::Tensor();
  }
  loss.backward({}, retain_graph);
  at::NoGradGuard no_grad;
  std::size_t i = 0;
  for (at::Tensor& parameter : trained(module)) {
    at::Tensor sum = before[i++];
    if (parameter.grad().defined()) {
      const at::Tensor part = weight == 0 ? at::zeros_like(parameter) : parameter.grad() * weight;
      sum = sum.defined() ? sum + part : part;
    }
    parameter.mutable_grad() = sum;
  }
}

// Averages every gradient over the ranks, except of the parameters named in `ignored`. One that is undefined here
// counts as zero.
inline void average(torch::nn::Module& module, const testing::Group& group,
                    const std::vector<std::string>& ignored = {}) {
  at::NoGradGuard no_grad;
  for (at::Tensor& parameter : trained(module)) {
    bool skip = false;
    for (const std::string& name : ignored) skip = skip || module.named_parameters()[name].is_same(parameter);
    if (skip) continue;
    at::Tensor sum = at::zeros_like(parameter);
    if (parameter.grad().defined()) sum.copy_(parameter.grad());
    if (sum.numel() > 0) group->all_reduce(sum, {.op = ReduceOp::avg}).wait();
    parameter.mutable_grad() = sum;
  }
}

// Within `tolerance` of the largest gradient. One that DDP left undefined counts as zero.
inline void expect_same_gradients(const torch::nn::Module& actual, const torch::nn::Module& expected,
                                  double tolerance = 1e-2) {
  const auto parameters = trained(actual), others = trained(expected);
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (parameters[i].numel() == 0) continue;
    const at::Tensor a = parameters[i].grad().defined() ? parameters[i].grad() : at::zeros_like(parameters[i]);
    const at::Tensor difference = (a - others[i].grad()).abs();
    EXPECT_LE(difference.max().item<double>(), 1e-6 + tolerance * others[i].grad().abs().max().item<double>())
        << "parameter " << i;
  }
}

// Copies of gradients that tensor hooks kept and of those that values retain.
inline std::vector<at::Tensor> copies(const std::vector<at::Tensor>& kept, const std::vector<at::Tensor>& retained) {
  std::vector<at::Tensor> result;
  for (const at::Tensor& gradient : kept) result.push_back(gradient.clone());
  for (const at::Tensor& value : retained) {
    if (value.grad().defined()) result.push_back(value.grad().clone());
  }
  return result;
}

}  // namespace lockstep::fuzz
