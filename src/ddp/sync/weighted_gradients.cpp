#include "ddp/sync/weighted_gradients.h"

namespace lockstep::detail {

namespace {

at::Tensor weighed(const at::Tensor& gradient, double weight, bool exclusive) {
  if (weight == 0) return at::zeros_like(gradient);
  // In 16 bits the factor would be rounded too.
  if (gradient.element_size() < 4) return gradient.to(at::kFloat).mul_(weight).to(gradient.scalar_type());
  return exclusive ? gradient.mul_(weight) : gradient * weight;
}

// Into the memory of `before`, as autograd adds to a gradient that exists: the program may share it.
void add(at::Tensor& before, const at::Tensor& gradient, double weight) {
  if (weight == 0) return;
  if (before.element_size() >= 4) {
    before.add_(gradient, weight);
  } else {
    before.copy_(before.to(at::kFloat).add_(gradient.to(at::kFloat), weight));
  }
}

}  // namespace

WeightedGradients::WeightedGradients(std::vector<at::Tensor> parameters)
    : parameters_(std::move(parameters)), sums_(parameters_.size()), aside_(parameters_.size(), 0) {}

void WeightedGradients::begin(double weight, double carry) {
  at::NoGradGuard no_grad;
  weight_ = weight;
  active_ = weight != 1 || carry != 1;
  for (std::size_t i = 0; active_ && i < parameters_.size(); ++i) {
    sums_[i] = std::move(parameters_[i].mutable_grad());
    parameters_[i].mutable_grad() = at::Tensor();
    aside_[i] = 1;
    if (carry != 1 && sums_[i].defined()) sums_[i].copy_(weighed(sums_[i], carry, /*exclusive=*/false));
  }
}

void WeightedGradients::arrived(std::size_t parameter, bool exclusive) {
  if (!active_) return;
  at::NoGradGuard no_grad;
  at::Tensor& gradient = parameters_[parameter].mutable_grad();
  at::Tensor& sum_so_far = sums_[parameter];
  if (sum_so_far.defined()) {
    add(sum_so_far, gradient, weight_);
  } else {
    sum_so_far = weighed(gradient, weight_, exclusive);
  }
  gradient = at::Tensor();
  aside_[parameter] = 1;
}

void WeightedGradients::settle(std::size_t parameter) {
  if (!active_ || aside_[parameter] == 0) return;
  parameters_[parameter].mutable_grad() = std::move(sums_[parameter]);
  sums_[parameter] = at::Tensor();
  aside_[parameter] = 0;
}

void WeightedGradients::end() {
  for (std::size_t i = 0; i < parameters_.size(); ++i) settle(i);
  active_ = false;
}

}  // namespace lockstep::detail
