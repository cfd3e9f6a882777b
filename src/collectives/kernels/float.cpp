// f32 and f64.
#include "collectives/kernels/call.h"
#include "collectives/kernels/kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "collectives/kernels/float.cpp"
#include "hwy/foreach_target.h"
//
#include "collectives/kernels/real-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep {
namespace HWY_NAMESPACE {

void reduce_f32(const KernelCall& call) { reduce_real<Plain<float>>(call); }
void reduce_f64(const KernelCall& call) { reduce_real<Plain<double>>(call); }
const char* target_name() { return hwy::TargetName(HWY_TARGET); }

}  // namespace HWY_NAMESPACE
}  // namespace lockstep
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep {

HWY_EXPORT(reduce_f32);
HWY_EXPORT(reduce_f64);
HWY_EXPORT(target_name);

void reduce_f32(const KernelCall& call) { HWY_DYNAMIC_DISPATCH(reduce_f32)(call); }
void reduce_f64(const KernelCall& call) { HWY_DYNAMIC_DISPATCH(reduce_f64)(call); }
const char* kernel_target() { return HWY_DYNAMIC_DISPATCH(target_name)(); }

}  // namespace lockstep
#endif
