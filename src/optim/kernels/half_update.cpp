// f16 and bf16: computed in f32 on master weights.
#include "optim/kernels/call.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "optim/kernels/half_update.cpp"
#include "hwy/foreach_target.h"
//
#include "collectives/kernels/half-inl.h"
#include "optim/kernels/loops-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::optim {
namespace HWY_NAMESPACE {
using lockstep::HWY_NAMESPACE::BrainFloat;
using lockstep::HWY_NAMESPACE::HalfFloat;

void update_f16(const Rule& rule, const UpdateCall& call) { update_all<HalfFloat>(rule, call); }
void update_bf16(const Rule& rule, const UpdateCall& call) { update_all<BrainFloat>(rule, call); }
double square_sum_f16(const std::byte* from, std::size_t count) { return square_sum<HalfFloat>(from, count); }
double square_sum_bf16(const std::byte* from, std::size_t count) { return square_sum<BrainFloat>(from, count); }

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::optim
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::optim {

HWY_EXPORT(update_f16);
HWY_EXPORT(update_bf16);
HWY_EXPORT(square_sum_f16);
HWY_EXPORT(square_sum_bf16);

void update_f16(const Rule& rule, const UpdateCall& call) { HWY_DYNAMIC_DISPATCH(update_f16)(rule, call); }
void update_bf16(const Rule& rule, const UpdateCall& call) { HWY_DYNAMIC_DISPATCH(update_bf16)(rule, call); }
double square_sum_f16(const std::byte* from, std::size_t count) {
  return HWY_DYNAMIC_DISPATCH(square_sum_f16)(from, count);
}
double square_sum_bf16(const std::byte* from, std::size_t count) {
  return HWY_DYNAMIC_DISPATCH(square_sum_bf16)(from, count);
}

}  // namespace lockstep::optim
#endif
