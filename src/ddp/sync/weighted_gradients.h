// Weights the gradients of one backward without changing what was accumulated before it.
//
// Autograd adds to .grad, after which old and new cannot be separated. Before a backward whose gradients have a weight,
// begin() therefore sets aside what .grad holds; each gradient that arrives is weighted and added to that. A weight of
// exactly 0 drops the gradient even if it is NaN (the mean over an empty batch). Works on tensors, without autograd.
// Not thread-safe.
#pragma once

#include <ATen/ATen.h>

#include <vector>

namespace lockstep::detail {

class WeightedGradients {
 public:
  explicit WeightedGradients(std::vector<at::Tensor> parameters);

  // A backward begins. What was accumulated before it is multiplied by `carry`. With two factors of 1 nothing needs to
  // be done.
  void begin(double weight, double carry = 1);
  bool active() const { return active_; }
  double weight() const { return weight_; }

  // A gradient has arrived in .grad. It may come again in this backward, so .grad is empty until settle(). `exclusive`:
  // its memory is its own (exclusive_memory.h).
  void arrived(std::size_t parameter, bool exclusive);
  // .grad holds the weighted sum from now on.
  void settle(std::size_t parameter);
  // The backward is over: settles what is left.
  void end();

 private:
  const std::vector<at::Tensor> parameters_;
  bool active_ = false;
  double weight_ = 1;
  std::vector<at::Tensor> sums_;  // of what came before and what has arrived; empty when settled
  std::vector<char> aside_;       // .grad was taken away and not given back yet
};

}  // namespace lockstep::detail
