// The loops over elements, for any element format (collectives/kernels/loops-inl.h) and rule.
// Included once per instruction set: the guard toggles.
//
// Every loop has a body of whole vectors and a tail of vectors of one element, from one template, so that an element
// gets the same operations at every position.
#if defined(LOCKSTEP_OPTIM_LOOPS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LOCKSTEP_OPTIM_LOOPS_INL_H_
#undef LOCKSTEP_OPTIM_LOOPS_INL_H_
#else
#define LOCKSTEP_OPTIM_LOOPS_INL_H_
#endif

#include <cstddef>
#include <variant>

#include "collectives/kernels/loops-inl.h"
#include "collectives/kernels/ops-inl.h"
#include "hwy/highway.h"
#include "optim/kernels/call.h"
#include "optim/kernels/rules-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::optim {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using lockstep::HWY_NAMESPACE::one_nan;

template <class Format, class Step>
struct UpdateLoop {
  using Element = typename Format::Element;
  using T = typename Format::Accumulator;
  static constexpr bool kHasMaster = sizeof(Element) != sizeof(T);

  const Step step;
  const T scale;
  const Element* HWY_RESTRICT const gradient;
  Element* HWY_RESTRICT const parameter;
  T* HWY_RESTRICT const master;
  T* HWY_RESTRICT const state0;
  T* HWY_RESTRICT const state1;
  T* HWY_RESTRICT const state2;

  UpdateLoop(const Step& step_, const UpdateCall& call)
      : step(step_),
        scale(static_cast<T>(call.scale)),
        gradient(reinterpret_cast<const Element*>(call.gradient)),
        parameter(reinterpret_cast<Element*>(call.parameter)),
        master(reinterpret_cast<T*>(call.master)),
        state0(reinterpret_cast<T*>(call.states[0])),
        state1(reinterpret_cast<T*>(call.states[1])),
        state2(reinterpret_cast<T*>(call.states[2])) {}

  template <unsigned kState, class D>
  static HWY_INLINE hn::VFromD<D> load_state(D d, const T* from, std::size_t i) {
    if constexpr ((Step::kStates & kState) != 0) {
      return hn::LoadU(d, from + i);
    } else {
      return hn::Zero(d);
    }
  }
  template <unsigned kState, class D>
  static HWY_INLINE void store_state(D d, hn::VFromD<D> v, T* to, std::size_t i) {
    if constexpr ((Step::kStates & kState) != 0) hn::StoreU(v, d, to + i);
  }

  // The master weight, unless it no longer rounds to the parameter.
  template <class D>
  HWY_INLINE hn::VFromD<D> load_parameter(D d, std::size_t i) const {
    const auto stored = Format::load(d, parameter + i);
    if constexpr (kHasMaster) {
      const auto wide = hn::LoadU(d, master + i);
      HWY_ALIGN Element rounded[hn::MaxLanes(hn::ScalableTag<T>())];
      Format::store(one_nan(d, wide), d, rounded);
      return hn::IfThenElse(hn::Eq(Format::load(d, rounded), stored), wide, stored);
    } else {
      return stored;
    }
  }

  template <class D>
  HWY_INLINE void update(D d, std::size_t i) const {
    const auto x = hn::Mul(Format::load(d, gradient + i), hn::Set(d, scale));
    auto s0 = load_state<1>(d, state0, i);
    auto s1 = load_state<2>(d, state1, i);
    auto s2 = load_state<4>(d, state2, i);
    auto w = step.apply(d, load_parameter(d, i), x, s0, s1, s2);
    // If a state is NaN, so is the parameter. This one test costs less than one for each value.
    if (!Step::kNanReachesParameter || HWY_UNLIKELY(!hn::AllFalse(d, hn::IsNaN(w)))) {
      w = one_nan(d, w);
      s0 = one_nan(d, s0);
      s1 = one_nan(d, s1);
      s2 = one_nan(d, s2);
    }
    store_state<1>(d, s0, state0, i);
    store_state<2>(d, s1, state1, i);
    store_state<4>(d, s2, state2, i);
    if constexpr (kHasMaster) hn::StoreU(w, d, master + i);
    Format::store(w, d, parameter + i);
  }

  HWY_INLINE void run(std::size_t count) const {
    const hn::ScalableTag<T> d;
    const std::size_t width = hn::Lanes(d);
    std::size_t i = 0;
    for (; i + width <= count; i += width) update(d, i);
    const hn::CappedTag<T, 1> d1;
    for (; i < count; ++i) update(d1, i);
  }
};

template <class Format, class Step, class RuleType>
void run_step(const RuleType& rule, const UpdateCall& call) {
  UpdateLoop<Format, Step>(Step(rule), call).run(call.count);
}

template <class Format>
void update_sgd(const SgdRule& rule, const UpdateCall& call) {
  using T = typename Format::Accumulator;
  if (rule.momentum == 0) return run_step<Format, SgdStep<T, Momentum::none>>(rule, call);
  if (rule.nesterov) return run_step<Format, SgdStep<T, Momentum::nesterov>>(rule, call);
  run_step<Format, SgdStep<T, Momentum::plain>>(rule, call);
}

template <class Format>
void update_rmsprop(const RmspropRule& rule, const UpdateCall& call) {
  using T = typename Format::Accumulator;
  const bool momentum = rule.momentum != 0;
  if (momentum && rule.centered) return run_step<Format, RmspropStep<T, true, true>>(rule, call);
  if (momentum) return run_step<Format, RmspropStep<T, true, false>>(rule, call);
  if (rule.centered) return run_step<Format, RmspropStep<T, false, true>>(rule, call);
  run_step<Format, RmspropStep<T, false, false>>(rule, call);
}

template <class Format>
void update_all(const Rule& rule, const UpdateCall& call) {
  using T = typename Format::Accumulator;
  if (const auto* sgd = std::get_if<SgdRule>(&rule)) return update_sgd<Format>(*sgd, call);
  if (const auto* adam = std::get_if<AdamRule>(&rule)) {
    if (adam->amsgrad) return run_step<Format, AdamStep<T, true>>(*adam, call);
    return run_step<Format, AdamStep<T, false>>(*adam, call);
  }
  if (const auto* adagrad = std::get_if<AdagradRule>(&rule)) return run_step<Format, AdagradStep<T>>(*adagrad, call);
  if (const auto* rmsprop = std::get_if<RmspropRule>(&rule)) return update_rmsprop<Format>(*rmsprop, call);
  if (const auto* lion = std::get_if<LionRule>(&rule)) return run_step<Format, LionStep<T>>(*lion, call);
}

// Element i is added to lane i % kNormLanes, on every instruction set; the lanes are added in order at the end.
constexpr std::size_t kNormLanes = 16;

template <class Format>
double square_sum(const std::byte* bytes, std::size_t count) {
  using T = typename Format::Accumulator;
  const auto* const from = reinterpret_cast<const typename Format::Element*>(bytes);
  const hn::CappedTag<double, kNormLanes> d;
  const hn::Rebind<T, decltype(d)> narrow;
  const std::size_t width = hn::Lanes(d);
  HWY_ALIGN double lanes[kNormLanes] = {};
  const auto add = [&](auto d_wide, [[maybe_unused]] auto d_narrow, std::size_t i, double* lane) HWY_ATTR {
    auto x = [&]() HWY_ATTR {
      if constexpr (sizeof(T) == sizeof(double)) {
        return Format::load(d_wide, from + i);
      } else {
        return hn::PromoteTo(d_wide, Format::load(d_narrow, from + i));
      }
    }();
    hn::StoreU(hn::Add(hn::LoadU(d_wide, lane), hn::Mul(x, x)), d_wide, lane);
  };
  std::size_t i = 0;
  for (; i + kNormLanes <= count; i += kNormLanes) {
    for (std::size_t lane = 0; lane < kNormLanes; lane += width) add(d, narrow, i + lane, lanes + lane);
  }
  const hn::CappedTag<double, 1> d1;
  const hn::Rebind<T, decltype(d1)> narrow1;
  for (; i < count; ++i) add(d1, narrow1, i, lanes + i % kNormLanes);
  double total = 0;
  for (double lane : lanes) total += lane;
  return total;
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::optim
HWY_AFTER_NAMESPACE();

#endif
