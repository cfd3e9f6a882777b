// f16 and bf16: combined in f32 over all inputs, rounded once, to nearest even.
#include "collectives/kernels/call.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "collectives/kernels/half.cpp"
#include "hwy/foreach_target.h"
//
#include "collectives/kernels/half-inl.h"
#include "collectives/kernels/real-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep {
namespace HWY_NAMESPACE {

void reduce_f16(const KernelCall& call) { reduce_real<HalfFloat>(call); }
void reduce_bf16(const KernelCall& call) { reduce_real<BrainFloat>(call); }

}  // namespace HWY_NAMESPACE
}  // namespace lockstep
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep {

HWY_EXPORT(reduce_f16);
HWY_EXPORT(reduce_bf16);

void reduce_f16(const KernelCall& call) { HWY_DYNAMIC_DISPATCH(reduce_f16)(call); }
void reduce_bf16(const KernelCall& call) { HWY_DYNAMIC_DISPATCH(reduce_bf16)(call); }

}  // namespace lockstep
#endif
