// The interface between kernels.cpp and the vector code of each family of element types.
#pragma once

#include <cstddef>
#include <span>

#include "lockstep/collectives/types.h"

// Less to compile, and nothing is compiled without being tested: reductions are limited by memory, so that AVX2
// serves machines with AVX-512 as well, and Core 2 and older run the portable code.
#ifndef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_AVX3 | HWY_AVX3_DL)
#endif

namespace lockstep {

// The arguments of reduce(), with `avg` already replaced by `sum`, and divisor >= 1.
struct KernelCall {
  ReduceOp op;
  std::span<const std::byte* const> srcs;
  std::span<std::byte* const> dsts;
  std::size_t count;
  int divisor;
};

// Each dispatches to the best instruction set of this machine.
void reduce_f32(const KernelCall& call);
void reduce_f64(const KernelCall& call);
void reduce_f16(const KernelCall& call);
void reduce_bf16(const KernelCall& call);
void reduce_i8(const KernelCall& call);
void reduce_u8(const KernelCall& call);
void reduce_i32(const KernelCall& call);
void reduce_i64(const KernelCall& call);

}  // namespace lockstep
