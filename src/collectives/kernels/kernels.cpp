#include "collectives/kernels/kernels.h"

#include <algorithm>
#include <cassert>
#include <cstring>

#include "collectives/kernels/call.h"

namespace lockstep {
namespace {

// Small enough that a block is still in L1 when it is copied to the second destination.
constexpr std::size_t kCopyBlock = std::size_t{16} << 10;

void copy_to_all(const std::byte* src, std::span<std::byte* const> dsts, std::size_t bytes) {
  const std::size_t block = dsts.size() == 1 ? bytes : kCopyBlock;
  for (std::size_t offset = 0; offset < bytes; offset += block) {
    const std::size_t size = std::min(block, bytes - offset);
    for (std::byte* dst : dsts) {
      if (dst != src) std::memcpy(dst + offset, src + offset, size);
    }
  }
}

}  // namespace

void reduce(DType dtype, ReduceOp op, std::span<const std::byte* const> srcs, std::span<std::byte* const> dsts,
            std::size_t count, int divisor) {
  assert(!srcs.empty());
  assert(is_integer(dtype) || (op != ReduceOp::bit_and && op != ReduceOp::bit_or && op != ReduceOp::bit_xor));
  if (dsts.empty() || count == 0) return;
  if (srcs.size() == 1 && divisor <= 1) return copy_to_all(srcs[0], dsts, count * element_size(dtype));

  const KernelCall call{op == ReduceOp::avg ? ReduceOp::sum : op, srcs, dsts, count, std::max(divisor, 1)};
  switch (dtype) {
    case DType::f32: return reduce_f32(call);
    case DType::f64: return reduce_f64(call);
    case DType::f16: return reduce_f16(call);
    case DType::bf16: return reduce_bf16(call);
    case DType::i8: return reduce_i8(call);
    case DType::u8: return reduce_u8(call);
    case DType::i32: return reduce_i32(call);
    case DType::i64: return reduce_i64(call);
  }
}

}  // namespace lockstep
