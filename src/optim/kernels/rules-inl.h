// What each rule does to an element, on vectors. Included once per instruction set: the guard toggles.
//
// A step is constructed from its rule: numbers are computed in double and rounded once to T, the type of the
// arithmetic.
//   kStates                      a bit for each state that it uses
//   kNanReachesParameter         whether the new parameter is NaN whenever a new state is
//   apply(d, w, x, s0, s1, s2)   the new parameter, from parameter and gradient; changes the states in place
// Only Mul, Add, Sub, Div and Sqrt: each is rounded exactly, on every machine. Never MulAdd, never an approximation.
#if defined(LOCKSTEP_OPTIM_RULES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LOCKSTEP_OPTIM_RULES_INL_H_
#undef LOCKSTEP_OPTIM_RULES_INL_H_
#else
#define LOCKSTEP_OPTIM_RULES_INL_H_
#endif

#include <cmath>

#include "hwy/highway.h"
#include "optim/exact_math.h"
#include "optim/update.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::optim {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// a * x + b * y
template <class D, class V = hn::VFromD<D>>
HWY_INLINE V blend(D d, hn::TFromD<D> a, V x, hn::TFromD<D> b, V y) {
  return hn::Add(hn::Mul(hn::Set(d, a), x), hn::Mul(hn::Set(d, b), y));
}
// x + a * y
template <class D, class V = hn::VFromD<D>>
HWY_INLINE V plus_scaled(D d, V x, hn::TFromD<D> a, V y) {
  return hn::Add(x, hn::Mul(hn::Set(d, a), y));
}
// The average of squares: a * s + (b * x) * x
template <class D, class V = hn::VFromD<D>>
HWY_INLINE V blend_square(D d, hn::TFromD<D> a, V s, hn::TFromD<D> b, V x) {
  return hn::Add(hn::Mul(hn::Set(d, a), s), hn::Mul(hn::Mul(hn::Set(d, b), x), x));
}

enum class Momentum { none, plain, nesterov };

template <typename T, Momentum kMomentum>
struct SgdStep {
  static constexpr unsigned kStates = kMomentum == Momentum::none ? 0 : 1;
  static constexpr bool kNanReachesParameter = true;
  T lr, weight_decay, momentum, keep, take;

  explicit SgdStep(const SgdRule& rule)
      : lr(static_cast<T>(rule.lr)),
        weight_decay(static_cast<T>(rule.weight_decay)),
        momentum(static_cast<T>(rule.momentum)),
        keep(rule.first ? T{0} : static_cast<T>(rule.momentum)),
        take(rule.first ? T{1} : static_cast<T>(1 - rule.dampening)) {}

  template <class D, class V = hn::VFromD<D>>
  HWY_INLINE V apply(D d, V w, V x, V& s0, V&, V&) const {
    x = plus_scaled(d, x, weight_decay, w);
    if constexpr (kMomentum != Momentum::none) {
      s0 = blend(d, keep, s0, take, x);
      x = kMomentum == Momentum::nesterov ? plus_scaled(d, x, momentum, s0) : s0;
    }
    return hn::Sub(w, hn::Mul(hn::Set(d, lr), x));
  }
};

template <typename T, bool kAmsgrad>
struct AdamStep {
  static constexpr unsigned kStates = kAmsgrad ? 7 : 3;
  static constexpr bool kNanReachesParameter = true;
  T shrink, weight_decay, beta1, rest1, beta2, rest2, size, root, eps;

  explicit AdamStep(const AdamRule& rule)
      : shrink(static_cast<T>(rule.decoupled ? 1 - rule.lr * rule.weight_decay : 1)),
        weight_decay(static_cast<T>(rule.decoupled ? 0 : rule.weight_decay)),
        beta1(static_cast<T>(rule.beta1)),
        rest1(static_cast<T>(1 - rule.beta1)),
        beta2(static_cast<T>(rule.beta2)),
        rest2(static_cast<T>(1 - rule.beta2)),
        size(static_cast<T>(rule.lr / (1 - integer_power(rule.beta1, rule.step)))),
        root(static_cast<T>(1 / std::sqrt(1 - integer_power(rule.beta2, rule.step)))),
        eps(static_cast<T>(rule.eps)) {}

  template <class D, class V = hn::VFromD<D>>
  HWY_INLINE V apply(D d, V w, V x, V& s0, V& s1, V& s2) const {
    x = plus_scaled(d, x, weight_decay, w);
    s0 = blend(d, beta1, s0, rest1, x);
    s1 = blend_square(d, beta2, s1, rest2, x);
    V largest = s1;
    if constexpr (kAmsgrad) {
      s2 = hn::IfThenElse(hn::Or(hn::Gt(s1, s2), hn::IsNaN(s1)), s1, s2);
      largest = s2;
    }
    const V divisor = hn::Add(hn::Mul(hn::Sqrt(largest), hn::Set(d, root)), hn::Set(d, eps));
    const V change = hn::Div(hn::Mul(hn::Set(d, size), s0), divisor);
    return hn::Sub(hn::Mul(w, hn::Set(d, shrink)), change);
  }
};

template <typename T>
struct AdagradStep {
  static constexpr unsigned kStates = 1;
  static constexpr bool kNanReachesParameter = true;
  T lr, weight_decay, eps;

  explicit AdagradStep(const AdagradRule& rule)
      : lr(static_cast<T>(rule.lr / (1 + static_cast<double>(rule.step - 1) * rule.lr_decay))),
        weight_decay(static_cast<T>(rule.weight_decay)),
        eps(static_cast<T>(rule.eps)) {}

  template <class D, class V = hn::VFromD<D>>
  HWY_INLINE V apply(D d, V w, V x, V& s0, V&, V&) const {
    x = plus_scaled(d, x, weight_decay, w);
    s0 = hn::Add(s0, hn::Mul(x, x));
    return hn::Sub(w, hn::Div(hn::Mul(hn::Set(d, lr), x), hn::Add(hn::Sqrt(s0), hn::Set(d, eps))));
  }
};

template <typename T, bool kMomentum, bool kCentered>
struct RmspropStep {
  static constexpr unsigned kStates = 1 | (kMomentum ? 2 : 0) | (kCentered ? 4 : 0);
  static constexpr bool kNanReachesParameter = true;
  T lr, weight_decay, eps, alpha, rest, momentum;

  explicit RmspropStep(const RmspropRule& rule)
      : lr(static_cast<T>(rule.lr)),
        weight_decay(static_cast<T>(rule.weight_decay)),
        eps(static_cast<T>(rule.eps)),
        alpha(static_cast<T>(rule.alpha)),
        rest(static_cast<T>(1 - rule.alpha)),
        momentum(static_cast<T>(rule.momentum)) {}

  template <class D, class V = hn::VFromD<D>>
  HWY_INLINE V apply(D d, V w, V x, V& s0, V& s1, V& s2) const {
    x = plus_scaled(d, x, weight_decay, w);
    s0 = blend_square(d, alpha, s0, rest, x);
    V square = s0;
    if constexpr (kCentered) {
      s2 = blend(d, alpha, s2, rest, x);
      // A variance: rounding may make it negative, whose root would be NaN.
      square = hn::Sub(s0, hn::Mul(s2, s2));
      square = hn::IfThenElse(hn::Lt(square, hn::Zero(d)), hn::Zero(d), square);
    }
    const V divisor = hn::Add(hn::Sqrt(square), hn::Set(d, eps));
    if constexpr (kMomentum) {
      s1 = hn::Add(hn::Mul(hn::Set(d, momentum), s1), hn::Div(x, divisor));
      return hn::Sub(w, hn::Mul(hn::Set(d, lr), s1));
    } else {
      return hn::Sub(w, hn::Div(hn::Mul(hn::Set(d, lr), x), divisor));
    }
  }
};

template <typename T>
struct LionStep {
  static constexpr unsigned kStates = 1;
  static constexpr bool kNanReachesParameter = false;  // beta2 = 0 and an infinite average
  T lr, shrink, beta1, rest1, beta2, rest2;

  explicit LionStep(const LionRule& rule)
      : lr(static_cast<T>(rule.lr)),
        shrink(static_cast<T>(1 - rule.lr * rule.weight_decay)),
        beta1(static_cast<T>(rule.beta1)),
        rest1(static_cast<T>(1 - rule.beta1)),
        beta2(static_cast<T>(rule.beta2)),
        rest2(static_cast<T>(1 - rule.beta2)) {}

  template <class D, class V = hn::VFromD<D>>
  HWY_INLINE V apply(D d, V w, V x, V& s0, V&, V&) const {
    const V direction = blend(d, beta1, s0, rest1, x);
    const V size = hn::Set(d, lr);
    // size * sign(direction); 0 and NaN stay what they are.
    V change = hn::IfThenElse(hn::Gt(direction, hn::Zero(d)), size, direction);
    change = hn::IfThenElse(hn::Lt(direction, hn::Zero(d)), hn::Neg(size), change);
    s0 = blend(d, beta2, s0, rest2, x);
    return hn::Sub(hn::Mul(w, hn::Set(d, shrink)), change);
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::optim
HWY_AFTER_NAMESPACE();

#endif
