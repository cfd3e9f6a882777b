// What the fuzzer's models are made of besides LibTorch, and what the C++ that it prints calls, so that a printed
// case computes the same numbers as the generated one.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <functional>
#include <vector>

namespace lockstep::fuzz {

// Numbers between -0.5 and 0.5 that `salt` determines.
inline at::Tensor values(at::IntArrayRef sizes, std::int64_t salt, at::ScalarType type = at::kFloat) {
  std::int64_t count = 1;
  for (std::int64_t size : sizes) count *= size;
  const at::Tensor angles = at::arange(count, at::kDouble).mul_(0.7390851).add_(static_cast<double>(salt) * 1.6180339);
  return angles.mul_(12.9898).sin_().mul_(0.5).reshape(sizes).to(type);
}

// Integers below `limit` that `salt` determines.
inline at::Tensor tokens(at::IntArrayRef sizes, std::int64_t salt, std::int64_t limit) {
  std::int64_t count = 1;
  for (std::int64_t size : sizes) count *= size;
  return at::arange(count, at::kLong).mul_(7919).add_(salt * 104729).remainder_(limit).reshape(sizes);
}

// The salt of a batch: other data for each rank, step, micro-batch and forward.
inline std::int64_t batch_salt(int rank, int step, int micro, int forward) {
  return 1 + rank + 7 * (step + 11 * (micro + 5 * static_cast<std::int64_t>(forward)));
}

// A checkpointed segment: runs without a graph, and again, with one, inside of backward.
class Checkpointed : public torch::autograd::Function<Checkpointed> {
 public:
  using Segment = std::function<at::Tensor(const at::Tensor&)>;
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x, const Segment& segment) {
    context->saved_data["segment"] = c10::IValue::make_capsule(c10::make_intrusive<Kept>(segment));
    context->save_for_backward({x});
    return segment(x);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradient) {
    const auto kept = c10::static_intrusive_pointer_cast<Kept>(context->saved_data["segment"].toCapsule());
    at::AutoGradMode with_gradients(true);
    at::Tensor x = context->get_saved_variables()[0].detach().requires_grad_(true);
    kept->segment(x).backward(gradient[0]);
    return {x.grad(), at::Tensor()};
  }

 private:
  struct Kept : torch::CustomClassHolder {
    explicit Kept(Segment segment_) : segment(std::move(segment_)) {}
    Segment segment;
  };
};
inline at::Tensor checkpoint(const Checkpointed::Segment& segment, const at::Tensor& x) {
  return Checkpointed::apply(x.requires_grad() ? x : x.detach().requires_grad_(true), segment);
}

inline at::Tensor attention(const at::Tensor& x, const at::Tensor& query, const at::Tensor& key,
                            const at::Tensor& value) {
  return torch::softmax(x.matmul(query).bmm(x.matmul(key).transpose(1, 2)), -1).bmm(x.matmul(value));
}

// Rows (i * factor + offset) % size of `tensor`.
inline at::Tensor rows(const at::Tensor& tensor, std::int64_t count, std::int64_t factor, std::int64_t offset) {
  if (count == 0) return tensor.narrow(0, 0, 0);
  return tensor.index_select(0, at::arange(count, at::kLong).mul_(factor).add_(offset).remainder_(tensor.size(0)));
}

// True on the ranks that a gate lets through.
inline bool passes(std::int64_t mask, bool varies, int rank, int step) {
  return (mask >> ((rank + (varies ? step : 0)) % 8) & 1) != 0;
}

}  // namespace lockstep::fuzz
