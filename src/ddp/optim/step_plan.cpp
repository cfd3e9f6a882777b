#include "ddp/optim/step_plan.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "ddp/optim/shared_memory.h"
#include "lockstep/base/status.h"

namespace lockstep::optim::detail {
namespace {

// Of a piece: small enough to balance threads, large enough that its start costs nothing.
constexpr std::size_t kPiece = 16 * kNormBlock;
// Below this, threads take longer to start than to update.
constexpr std::size_t kParallel = 4 * kPiece;

[[noreturn]] void refuse(const at::Tensor& parameter, const std::string& why) {
  throw Error({StatusCode::invalid_argument,
               fmt::format("optim: a parameter of shape {} and type {} {}", c10::str(parameter.sizes()),
                           c10::toString(parameter.scalar_type()), why)});
}

DType dtype_of_parameter(const at::Tensor& parameter) {
  switch (parameter.scalar_type()) {
    case at::kFloat: return DType::f32;
    case at::kDouble: return DType::f64;
    case at::kHalf: return DType::f16;
    case at::kBFloat16: return DType::bf16;
    default: refuse(parameter, "cannot be updated; the fused optimizers have float, double, half and bfloat16");
  }
}

void check(const at::Tensor& parameter, const at::Tensor& gradient) {
  if (!parameter.is_cpu()) {
    refuse(parameter, fmt::format("is on {}; the fused optimizers work on the CPU, use torch::optim there",
                                  parameter.device().str()));
  }
  if (gradient.layout() != at::kStrided || parameter.layout() != at::kStrided) {
    refuse(parameter, "has a sparse gradient; make it dense, or use torch::optim");
  }
  if (!gradient.is_cpu() || gradient.scalar_type() != parameter.scalar_type()) {
    refuse(parameter, fmt::format("has a gradient of type {} on {}: the parameter was converted or moved after "
                                  "backward; call zero_grad()",
                                  c10::toString(gradient.scalar_type()), gradient.device().str()));
  }
  if (gradient.sizes() != parameter.sizes()) {
    refuse(parameter, fmt::format("has a gradient of shape {}", c10::str(gradient.sizes())));
  }
}

std::vector<std::int64_t> order_of(const at::Tensor& parameter) {
  if (parameter.is_non_overlapping_and_dense()) return parameter.strides().vec();
  std::vector<std::int64_t> strides(static_cast<std::size_t>(parameter.dim()), 1);
  for (std::int64_t i = parameter.dim() - 2; i >= 0; --i) {
    const auto k = static_cast<std::size_t>(i);
    strides[k] = strides[k + 1] * std::max<std::int64_t>(parameter.size(i + 1), 1);
  }
  return strides;
}

}  // namespace

at::ScalarType state_type(const at::Tensor& parameter) {
  return parameter.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

Ordered::Ordered(const at::Tensor& of, at::IntArrayRef strides) : tensor(of) {
  if (of.numel() <= 1 || of.strides() == strides) return;
  original = of;
  tensor = at::empty_strided(of.sizes(), strides, of.options().requires_grad(false)).copy_(of);
}

void StepPlan::add(const at::Tensor& parameter) {
  const at::Tensor gradient = parameter.grad();
  check(parameter, gradient);
  const DType dtype = dtype_of_parameter(parameter);
  const auto count = static_cast<std::size_t>(parameter.numel());
  std::vector<std::int64_t> strides = order_of(parameter);
  Ordered ordered(gradient.detach(), strides);
  entries_.push_back({.parameter = parameter,
                      .strides = std::move(strides),
                      .dtype = dtype,
                      .count = count,
                      .gradient = std::move(ordered),
                      .value = {},
                      .master = {},
                      .states = {},
                      .rule = {},
                      .first_block = blocks_});
  blocks_ += norm_blocks(count);
}

// Each thread gets consecutive pieces with about as many elements as the others.
template <typename Work>
void StepPlan::for_each_piece(Work work) {
  std::vector<Piece> pieces;
  std::vector<std::size_t> ends;  // after each piece, in elements
  std::size_t total = 0;
  for (std::size_t e = 0; e < entries_.size(); ++e) {
    for (std::size_t offset = 0; offset < entries_[e].count; offset += kPiece) {
      pieces.push_back({e, offset, std::min(kPiece, entries_[e].count - offset)});
      ends.push_back(total += pieces.back().count);
    }
  }
  const auto threads = static_cast<std::size_t>(total < kParallel ? 1 : std::max(1, at::get_num_threads()));
  const auto first_of = [&](std::size_t thread) {
    const std::size_t elements = total / threads * thread + total % threads * thread / threads;
    return static_cast<std::size_t>(std::lower_bound(ends.begin(), ends.end(), elements) - ends.begin());
  };
  const auto run_thread = [&](std::size_t thread) {
    // A piece belongs to the thread in whose range it ends.
    const std::size_t begin = thread == 0 ? 0 : first_of(thread);
    const std::size_t end = thread + 1 == threads ? pieces.size() : first_of(thread + 1);
    for (std::size_t i = begin; i < end; ++i) work(pieces[i]);
  };
  if (threads == 1) return run_thread(0);
  at::parallel_for(0, static_cast<std::int64_t>(threads), 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t thread = begin; thread < end; ++thread) run_thread(static_cast<std::size_t>(thread));
  });
}

double StepPlan::sum_of_squares() {
  std::vector<double> sums(blocks_);
  for_each_piece([&](const Piece& piece) {
    const Entry& entry = entries_[piece.entry];
    const std::byte* const from = entry.gradient.data() + piece.offset * element_size(entry.dtype);
    const std::size_t first = entry.first_block + piece.offset / kNormBlock;
    square_sums({.dtype = entry.dtype, .ranks = std::span(&from, 1)}, piece.count,
                std::span(sums).subspan(first, norm_blocks(piece.count)));
  });
  double total = 0;
  for (double sum : sums) total += sum;
  return total;
}

StepResult StepPlan::prepare(const StepOptions& options) {
  std::vector<at::Tensor> parameters;
  for (const Entry& entry : entries_) parameters.push_back(entry.parameter);
  if (const auto shared = lockstep::detail::find_shared_memory(parameters)) {
    refuse(
        parameters[shared->first],
        fmt::format("shares memory with one of shape {}, which is updated at the same time; give the optimizer one of "
                    "them, or use torch::optim",
                    c10::str(parameters[shared->second].sizes())));
  }

  if (!(options.loss_scale > 0) || !(options.max_norm >= 0)) {
    throw Error(
        {StatusCode::invalid_argument,
         fmt::format("optim: loss_scale is {} and max_norm {}; loss_scale must be more than 0, and max_norm not "
                     "negative",
                     options.loss_scale, options.max_norm)});
  }
  StepResult result;
  scale_ = (options.maximize ? -1 : 1) / options.loss_scale;
  if (options.max_norm <= 0 && !options.skip_nonfinite) return result;
  const double norm = std::sqrt(sum_of_squares()) / options.loss_scale;
  result.gradient_norm = norm;
  result.skipped = options.skip_nonfinite && !std::isfinite(norm);
  // As clip_grad_norm_: a norm that is not a number makes all gradients that.
  if (options.max_norm > 0 && !(norm + 1e-6 <= options.max_norm)) scale_ *= options.max_norm / (norm + 1e-6);
  return result;
}

void StepPlan::set(std::size_t index, const Rule& rule, const std::array<at::Tensor, kMaxStates>& states,
                   const at::Tensor& master) {
  Entry& entry = entries_[index];
  entry.rule = rule;
  entry.value = Ordered(entry.parameter.detach(), entry.strides);
  if (master.defined()) entry.master = Ordered(master, entry.strides);
  for (std::size_t k = 0; k < kMaxStates; ++k) {
    if (states[k].defined()) entry.states[k] = Ordered(states[k], entry.strides);
  }
}

void StepPlan::run() {
  for_each_piece([&](const Piece& piece) {
    const Entry& entry = entries_[piece.entry];
    const std::size_t size = element_size(entry.dtype);
    const std::size_t state_size = entry.dtype == DType::f64 ? sizeof(double) : sizeof(float);
    const std::byte* const gradient = entry.gradient.data() + piece.offset * size;
    Shard shard{.gradients = {.dtype = entry.dtype, .ranks = std::span(&gradient, 1)},
                .scale = scale_,
                .parameter = entry.value.data() + piece.offset * size,
                .count = piece.count};
    if (std::byte* const master = entry.master.data()) shard.master = reinterpret_cast<float*>(master) + piece.offset;
    for (std::size_t k = 0; k < kMaxStates; ++k) {
      if (std::byte* const state = entry.states[k].data()) shard.states[k] = state + piece.offset * state_size;
    }
    update(entry.rule, shard);
  });
  for (const Entry& entry : entries_) {
    entry.value.write_back();
    entry.master.write_back();
    for (const Ordered& state : entry.states) state.write_back();
    // So that autograd notices if a graph still needs the old value.
    entry.parameter.unsafeGetTensorImpl()->bump_version();
  }
}

}  // namespace lockstep::optim::detail
