// Reductions of real numbers: combined in float or double, finished by an exact division.
// Included once per instruction set: the guard toggles.
#if defined(LOCKSTEP_KERNELS_REAL_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LOCKSTEP_KERNELS_REAL_INL_H_
#undef LOCKSTEP_KERNELS_REAL_INL_H_
#else
#define LOCKSTEP_KERNELS_REAL_INL_H_
#endif

#include "collectives/kernels/loops-inl.h"
#include "collectives/kernels/ops-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep {
namespace HWY_NAMESPACE {

template <class Format, class Finish>
void reduce_real_finished(const KernelCall& call, Finish finish) {
  switch (call.op) {
    case ReduceOp::prod: return Blocked<Format, Prod>::run(call, finish, DivideNothing());
    case ReduceOp::min: return Blocked<Format, Min>::run(call, finish, DivideNothing());
    case ReduceOp::max: return Blocked<Format, Max>::run(call, finish, DivideNothing());
    default: break;
  }
  if (call.srcs.size() >= 2 && call.srcs.size() <= 4) return reduce_fused<Format, Sum>(call, finish);
  Blocked<Format, Sum>::run(call, finish, DivideNothing());
}

template <class Format>
void reduce_real(const KernelCall& call) {
  using Accumulator = typename Format::Accumulator;
  const Accumulator divisor = static_cast<Accumulator>(call.divisor);
  if ((call.divisor & (call.divisor - 1)) == 0) {
    reduce_real_finished<Format>(call, FinishMultiply<Accumulator>{1 / divisor});
  } else {
    reduce_real_finished<Format>(call, FinishDivide<Accumulator>{divisor});
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep
HWY_AFTER_NAMESPACE();

#endif
