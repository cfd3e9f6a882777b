#include "optim/update.h"

#include <algorithm>
#include <cassert>
#include <vector>

#include "collectives/kernels/kernels.h"
#include "optim/kernels/call.h"

namespace lockstep::optim {
namespace {

// Gradients of several ranks are reduced into a block that stays in L1 until it is used.
constexpr std::size_t kReduceBlock = 2048;

void run(const Rule& rule, DType dtype, const UpdateCall& call) {
  switch (dtype) {
    case DType::f32: return update_f32(rule, call);
    case DType::f64: return update_f64(rule, call);
    case DType::f16: return update_f16(rule, call);
    case DType::bf16: return update_bf16(rule, call);
    default: assert(false && "gradients are floating-point numbers");
  }
}

double square_sum(DType dtype, const std::byte* from, std::size_t count) {
  switch (dtype) {
    case DType::f32: return square_sum_f32(from, count);
    case DType::f64: return square_sum_f64(from, count);
    case DType::f16: return square_sum_f16(from, count);
    case DType::bf16: return square_sum_bf16(from, count);
    default: assert(false && "gradients are floating-point numbers"); return 0;
  }
}

// Calls consume(reduced gradient, offset, count) for blocks of at most `block` elements, or for all elements at once if
// there is nothing to reduce and block is 0.
template <typename Consume>
void for_each_block(const Gradients& gradients, std::size_t count, std::size_t block, Consume consume) {
  assert(!gradients.ranks.empty());
  const std::size_t size = element_size(gradients.dtype);
  const bool reduced = gradients.ranks.size() == 1 && gradients.divisor <= 1;
  if (block == 0) block = reduced ? count : kReduceBlock;
  alignas(64) std::byte memory[kNormBlock * sizeof(double)];
  std::byte* const total = memory;
  std::vector<const std::byte*> from(reduced ? 0 : gradients.ranks.size());
  for (std::size_t offset = 0; offset < count; offset += block) {
    const std::size_t n = std::min(block, count - offset);
    if (reduced) {
      consume(gradients.ranks[0] + offset * size, offset, n);
      continue;
    }
    for (std::size_t k = 0; k < from.size(); ++k) from[k] = gradients.ranks[k] + offset * size;
    reduce(gradients.dtype, ReduceOp::sum, from, std::span(&total, 1), n, gradients.divisor);
    consume(total, offset, n);
  }
}

}  // namespace

void update(const Rule& rule, const Shard& shard) {
  const DType dtype = shard.gradients.dtype;
  const bool is_half = dtype == DType::f16 || dtype == DType::bf16;
  assert(is_half == (shard.master != nullptr) || shard.count == 0);
  const std::size_t state_size = dtype == DType::f64 ? sizeof(double) : sizeof(float);
  for_each_block(shard.gradients, shard.count, 0, [&](const std::byte* gradient, std::size_t offset, std::size_t n) {
    UpdateCall call{gradient,
                    shard.scale,
                    shard.parameter + offset * element_size(dtype),
                    is_half ? shard.master + offset : nullptr,
                    shard.states,
                    n};
    for (std::byte*& state : call.states) {
      if (state != nullptr) state += offset * state_size;
    }
    run(rule, dtype, call);
  });
}

void square_sums(const Gradients& gradients, std::size_t count, std::span<double> sums) {
  assert(sums.size() == norm_blocks(count));
  for_each_block(gradients, count, kNormBlock, [&](const std::byte* gradient, std::size_t offset, std::size_t n) {
    sums[offset / kNormBlock] = square_sum(gradients.dtype, gradient, n);
  });
}

}  // namespace lockstep::optim
