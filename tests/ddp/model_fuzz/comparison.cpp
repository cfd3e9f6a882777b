#include "ddp/model_fuzz/comparison.h"

#include <fmt/format.h>
#include <torch/torch.h>
#include <xxhash.h>

#include <algorithm>
#include <cmath>

#include "ddp/model_fuzz/rules.h"

namespace lockstep::fuzz {

namespace {

// Of sums in another order, relative to the largest number.
double rounding(Type type) { return type == Type::f32 ? 1e-5 : type == Type::f64 ? 1e-12 : 1.0 / 64; }

std::string describe(const at::Tensor& tensor) {
  return tensor.defined() ? fmt::format("{}{}", c10::toString(tensor.scalar_type()), c10::str(tensor.sizes()))
                          : "undefined";
}

// What is left of gradients that cancel out (as behind a batch norm of a sum): relative to all of them.
double noise(const Expected& expected) {
  double largest = 1;
  for (double magnitude : expected.magnitudes) largest = std::max(largest, magnitude);  // not if it is NaN
  return 1e-6 * largest;
}

}  // namespace

void Comparison::wrong(const std::string& check, const std::string& detail) {
  if (outcome_.kind != Outcome::Kind::fine) return;
  outcome_ = {Outcome::Kind::wrong, check, fmt::format("rank {}: {}", group_->rank(), detail)};
}

bool Comparison::close(const std::string& check, const std::string& tensor, int step, const at::Tensor& actual,
                       const at::Tensor& expected, double tolerance) {
  if (actual.defined() != expected.defined() ||
      (actual.defined() && (actual.sizes() != expected.sizes() || actual.scalar_type() != expected.scalar_type()))) {
    wrong(check,
          fmt::format("{} is {} and should be {} in step {}", tensor, describe(actual), describe(expected), step));
    return false;
  }
  if (!actual.defined() || actual.numel() == 0) return true;
  const at::Tensor a = actual.detach().to(at::kDouble), e = expected.detach().to(at::kDouble);
  const at::Tensor same = at::logical_or(a == e, at::logical_and(a.isnan(), e.isnan()));  // infinities too
  const at::Tensor difference = at::where(same, at::zeros_like(a), (a - e).abs());
  const double largest = difference.max().item<double>();
  if (largest == 0 || largest <= tolerance) return true;  // not if it is NaN
  const double norm = e.norm().item<double>();
  wrong(check, fmt::format("{} {} differs by up to {:.3g} ({:.3g} allowed; {:.1f} % in norm) in step {}", tensor,
                           describe(actual), largest, tolerance,
                           100 * difference.norm().item<double>() / std::max(norm, 1e-30), step));
  return false;
}

// What the hook may change a gradient by: include/lockstep/ddp/hooks.h has the bounds.
double Comparison::tolerance(std::size_t parameter, const Expected& expected) const {
  const Type type = case_.model.parameters[parameter].type;
  const double magnitude = expected.magnitudes[parameter];
  if (!std::isfinite(magnitude)) return INFINITY;
  const double exact = rounding(type) * magnitude + noise(expected);
  if (case_.training.world == 1) return exact;
  switch (case_.options.hook) {
    case Hook::fp16:
      if (type == Type::bf16) return exact;
      if (magnitude > 30000) return INFINITY;  // near what overflows
      return exact + 2.1 * std::exp2(-11) * magnitude + 6 * std::exp2(-25);
    case Hook::bf16: return type == Type::bf16 ? exact : exact + 2.1 * std::exp2(-8) * magnitude;
    case Hook::int8: {
      if (type != Type::f32) return exact;
      double block = 0;  // gradients of one bucket may share a block
      for (std::size_t p = 0; p < expected.magnitudes.size(); ++p) {
        if (case_.model.parameters[p].type == Type::f32) block = std::max(block, expected.magnitudes[p]);
      }
      return exact + block / 127 * 1.01;
    }
    case Hook::power_sgd:
      if (type != Type::f32 || case_.model.parameters[parameter].shape.size() < 2) return exact;
      return is_exact(case_.options) ? exact : INFINITY;
    default: return exact;
  }
}

void Comparison::gradients(int step, const Expected& expected, const std::vector<at::Tensor>& gradients) {
  for (std::size_t p = 0; p < gradients.size() && !expected.undefined_sums; ++p) {
    const double allowed = tolerance(p, expected);
    if (std::isinf(allowed)) continue;
    close("gradient", fmt::format("gradient of p{}", p), step, gradients[p], expected.gradients[p], allowed);
  }
}

void Comparison::step(int step, const Expected& expected, GraphModule& module, const LocalGradients& local) {
  std::vector<at::Tensor> gradients;
  for (const at::Tensor& leaf : module.leaves()) gradients.push_back(leaf.grad());
  this->gradients(step, expected, gradients);
  for (std::size_t b = 0; b < local.watched.size(); ++b) {
    for (const auto& [name, tensors] : expected.local.watched[b]) {
      const auto found = local.watched[b].find(name);
      if (found == local.watched[b].end() || found->second.size() != tensors.size()) {
        wrong("watched gradient", fmt::format("{} did not come as often as by hand in step {}", name, step));
        continue;
      }
      for (std::size_t i = 0; i < tensors.size(); ++i) {
        const at::Tensor& e = tensors[i];
        const double size = e.defined() && e.numel() > 0 ? e.abs().max().item<double>() : 0;
        const double relative = e.defined() && e.scalar_type() == at::kBFloat16 ? rounding(Type::bf16) : 1e-5;
        close("watched gradient", "gradient of " + name, step, found->second[i], e, relative * size + noise(expected));
      }
    }
  }
  for (std::size_t i = 0; i < local.inputs.size(); ++i) {
    const at::Tensor& e = expected.local.inputs[i];
    const double size = e.defined() && e.numel() > 0 ? e.abs().max().item<double>() : 0;
    close("input gradient", fmt::format("gradient of input {}", i), step, local.inputs[i], e,
          1e-5 * size + noise(expected));
  }
  if (case_.training.forwards > 1) return;  // between the two forwards, buffers may be brought into step or not
  const auto buffers = module.buffers();
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    close("buffer", fmt::format("buffer {}", i), step, buffers[i], expected.buffers[i], 1e-4);
  }
}

void Comparison::whole_batch(int step, const Expected& expected, const std::vector<at::Tensor>& gradients,
                             GraphModule& module) {
  // Sums over other batches, through the least exact type that the model has, and perhaps ill-conditioned. The program
  // by hand is the sharp comparison; this one shows that both average the right thing.
  double relative = 1e-6;
  for (const Node& node : case_.model.nodes) {
    if (node.type == Type::f32) relative = std::max(relative, 5e-2);
    if (node.type == Type::bf16) relative = std::max(relative, 0.2);
  }
  for (std::size_t p = 0; p < gradients.size(); ++p) {
    close("whole batch", fmt::format("gradient of p{}", p), step, module.leaves()[p].grad(), gradients[p],
          relative * expected.magnitudes[p] + noise(expected));
  }
}

void Comparison::across_ranks(const std::string& check, int step, const std::vector<at::Tensor>& tensors) {
  const auto count = static_cast<std::int64_t>(tensors.size());
  if (count == 0) return;
  at::Tensor mine = at::zeros({count}, at::kLong);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (!tensors[i].defined()) continue;
    const at::Tensor block = tensors[i].detach().contiguous();
    mine[static_cast<std::int64_t>(i)] = static_cast<std::int64_t>(XXH3_64bits(block.data_ptr(), block.nbytes()) >> 1);
  }
  at::Tensor all = at::empty({count * group_->size()}, at::kLong);
  group_->all_gather(mine, all, {}).wait();
  for (std::int64_t r = 1; r < group_->size(); ++r) {
    for (std::int64_t i = 0; i < count; ++i) {
      if (all[r * count + i].item<std::int64_t>() == all[i].item<std::int64_t>()) continue;
      wrong(check, fmt::format("tensor {} of rank {} is not bit for bit that of rank 0 in step {}", i, r, step));
    }
  }
}

}  // namespace lockstep::fuzz
