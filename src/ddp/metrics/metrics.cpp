#include "lockstep/ddp/metrics.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>

#include "base/invalid_argument.h"

namespace lockstep {

void Mean::add(double value, double weight) {
  if (!(weight >= 0) || std::isinf(weight)) {
    throw_invalid_argument("Mean::add", fmt::format("the weight is {}; it must be a finite number from 0 on", weight));
  }
  if (weight == 0) return;  // also if the value is NaN, the mean of an empty batch
  sum_ += value * weight;
  weight_ += weight;
}

void Mean::add(const at::Tensor& values) {
  if (!values.defined()) throw_invalid_argument("Mean::add", "the tensor is undefined");
  if (values.numel() == 0) return;
  sum_ += values.detach().to(at::kDouble).sum().item<double>();
  weight_ += static_cast<double>(values.numel());
}

double Mean::compute(const TensorCallOptions& options) const {
  at::Tensor total = at::empty({2}, at::kDouble);
  auto* numbers = total.data_ptr<double>();
  numbers[0] = sum_;
  numbers[1] = weight_;
  all_reduce(total, {.group = options.group, .timeout = options.timeout});
  return numbers[0] / numbers[1];
}

Accuracy::Accuracy(int top) : top_(top) {
  if (top < 1) throw_invalid_argument("Accuracy", fmt::format("top is {}; 1 is the smallest", top));
}

void Accuracy::add(const at::Tensor& scores, const at::Tensor& labels) {
  if (!scores.defined() || !labels.defined()) throw_invalid_argument("Accuracy::add", "a tensor is undefined");
  if (scores.dim() != 2 || labels.dim() != 1 || labels.size(0) != scores.size(0)) {
    throw_invalid_argument("Accuracy::add",
                           fmt::format("scores must be (N, classes) and labels (N), but they are [{}] and [{}]",
                                       fmt::join(scores.sizes(), ", "), fmt::join(labels.sizes(), ", ")));
  }
  if (top_ > scores.size(1)) {
    throw_invalid_argument("Accuracy::add", fmt::format("top is {}, but there are {} classes", top_, scores.size(1)));
  }
  const at::Tensor best = std::get<1>(scores.detach().topk(top_, 1));
  right_.add(best.eq(labels.detach().unsqueeze(1)).any(1));
}

}  // namespace lockstep
