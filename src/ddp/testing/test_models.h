// A model, its data, and one process's gradients, for the tests of DDP.
#pragma once

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <mutex>
#include <vector>

#include "ddp/testing/test_ranks.h"

namespace lockstep::testing {

// A weight of more than 1 MiB (a bucket of its own), small ones beside it, and a batch norm's buffers.
struct NetImpl : torch::nn::Module {
  explicit NetImpl(std::int64_t wide = 640) {
    first = register_module("first", torch::nn::Linear(8, wide));
    middle = register_module("middle", torch::nn::Linear(wide, wide));
    last = register_module("last", torch::nn::Linear(wide, 3));
  }
  at::Tensor forward(const at::Tensor& x) { return last(torch::tanh(middle(torch::tanh(first(x))))); }
  torch::nn::Linear first{nullptr}, middle{nullptr}, last{nullptr};
};
TORCH_MODULE(Net);

inline at::Tensor inputs(std::int64_t rows) { return torch::linspace(-1, 1, rows * 8).reshape({rows, 8}); }
inline at::Tensor targets(std::int64_t rows) { return torch::linspace(0, 1, rows * 3).reshape({rows, 3}); }
inline at::Tensor share(const at::Tensor& whole, const Group& group) {
  return whole.chunk(group->size(), 0)[static_cast<std::size_t>(group->rank())];
}
inline at::Tensor loss_of(const at::Tensor& output, const at::Tensor& target) {
  return torch::mse_loss(output, target);
}

inline Net net_with_seed(std::uint64_t seed, std::int64_t wide = 640) {
  static std::mutex generator;  // torch's default generator is one for all threads
  std::lock_guard lock(generator);
  torch::manual_seed(seed);
  return Net(wide);
}

inline void expect_close(const std::vector<at::Tensor>& actual, const std::vector<at::Tensor>& expected,
                         double tolerance = 1e-6) {
  ASSERT_EQ(actual.size(), expected.size());
  for (std::size_t i = 0; i < actual.size(); ++i) {
    EXPECT_TRUE(torch::allclose(actual[i], expected[i], 1e-4, tolerance))
        << "tensor " << i << " differs by " << (actual[i] - expected[i]).abs().max().item<double>();
  }
}

inline std::vector<at::Tensor> gradients(const std::vector<at::Tensor>& parameters) {
  std::vector<at::Tensor> result;
  for (const at::Tensor& parameter : parameters) result.push_back(parameter.grad());
  return result;
}

// Gradients of one process with the whole batch.
inline std::vector<at::Tensor> whole_batch_gradients(std::int64_t rows) {
  Net net = net_with_seed(1);
  loss_of(net(inputs(rows)), targets(rows)).backward();
  return gradients(net->parameters());
}

}  // namespace lockstep::testing
