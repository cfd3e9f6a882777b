// f32 and f64.
#include "optim/kernels/call.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "optim/kernels/float_update.cpp"
#include "hwy/foreach_target.h"
//
#include "optim/kernels/loops-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::optim {
namespace HWY_NAMESPACE {
using lockstep::HWY_NAMESPACE::Plain;

void update_f32(const Rule& rule, const UpdateCall& call) { update_all<Plain<float>>(rule, call); }
void update_f64(const Rule& rule, const UpdateCall& call) { update_all<Plain<double>>(rule, call); }
double square_sum_f32(const std::byte* from, std::size_t count) { return square_sum<Plain<float>>(from, count); }
double square_sum_f64(const std::byte* from, std::size_t count) { return square_sum<Plain<double>>(from, count); }
const char* update_target() { return hwy::TargetName(HWY_TARGET); }

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::optim
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::optim {

HWY_EXPORT(update_f32);
HWY_EXPORT(update_f64);
HWY_EXPORT(square_sum_f32);
HWY_EXPORT(square_sum_f64);
HWY_EXPORT(update_target);

void update_f32(const Rule& rule, const UpdateCall& call) { HWY_DYNAMIC_DISPATCH(update_f32)(rule, call); }
void update_f64(const Rule& rule, const UpdateCall& call) { HWY_DYNAMIC_DISPATCH(update_f64)(rule, call); }
double square_sum_f32(const std::byte* from, std::size_t count) {
  return HWY_DYNAMIC_DISPATCH(square_sum_f32)(from, count);
}
double square_sum_f64(const std::byte* from, std::size_t count) {
  return HWY_DYNAMIC_DISPATCH(square_sum_f64)(from, count);
}
const char* update_target() { return HWY_DYNAMIC_DISPATCH(update_target)(); }

}  // namespace lockstep::optim
#endif
