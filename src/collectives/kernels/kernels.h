// Reduction kernels: Google Highway, the best instruction set chosen at run time.
#pragma once

#include <cstddef>
#include <span>

#include "lockstep/collectives/types.h"

namespace lockstep {

// For each i in [0, count): combines srcs[0][i], srcs[1][i], ... in exactly this order in one pass,
// divides by `divisor` if it is > 1 (this is how avg is fused; `op` avg combines as sum), and
// stores the result to every dsts[k][i].
//
// - srcs has at least one entry. With one entry it is a (multi-destination) copy, with division.
// - A dst may be exactly equal to a src (in place) or overlap none; dsts do not overlap each other.
// - No alignment is required beyond the element's.
// - The result of an element depends on its inputs and their order only, never on count, alignment,
//   the position in the buffer or the instruction set, bit for bit. So that this holds for NaN too,
//   every NaN that is computed is the positive quiet NaN without payload (a plain copy keeps all bits).
// - f16 and bf16 are combined in f32 over all inputs and rounded once, to nearest even.
// - min and max keep the earlier of two equal inputs (-0 and +0 are equal).
// - Calling a bitwise op on a floating-point type is a programming error (asserted).
// Thread-safe; does not block, allocate or fail.
void reduce(DType dtype, ReduceOp op, std::span<const std::byte* const> srcs, std::span<std::byte* const> dsts,
            std::size_t count, int divisor = 1);

// memcpy that writes around the caches (non-temporal stores), for bytes that this core does not read
// again soon: into staging memory that another core has read before and will read next, because there
// ordinary stores wait for the other core's copy of every line; and into cold private memory. `dst` and
// `src` do not overlap. When it returns, a release store publishes the bytes like any others.
// Thread-safe; does not block, allocate or fail.
void copy_bytes(std::byte* dst, const std::byte* src, std::size_t bytes);

// The instruction set that this machine uses: "AVX2", "SSE4", ...
const char* kernel_target();

}  // namespace lockstep
