// How two elements are combined, for each reduction operation, and how the result is finished.
// Included once per instruction set: the guard toggles.
#if defined(LOCKSTEP_KERNELS_OPS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LOCKSTEP_KERNELS_OPS_INL_H_
#undef LOCKSTEP_KERNELS_OPS_INL_H_
#else
#define LOCKSTEP_KERNELS_OPS_INL_H_
#endif

#include <limits>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

struct Sum {
  template <class V>
  static HWY_INLINE V combine(V total, V next) {
    return hn::Add(total, next);
  }
};

struct Prod {
  template <class V>
  static HWY_INLINE V combine(V total, V next) {
    return hn::Mul(total, next);
  }
};

// Comparisons and not the vector minimum: instruction sets differ in what that does with NaN and
// with -0 against +0. Of two equal inputs the earlier one stays.
struct Min {
  template <class V>
  static HWY_INLINE V combine(V total, V next) {
    if constexpr (hwy::IsFloat<hn::TFromV<V>>()) {
      return hn::IfThenElse(hn::Or(hn::Lt(next, total), hn::IsNaN(next)), next, total);
    } else {
      return hn::Min(total, next);
    }
  }
};

struct Max {
  template <class V>
  static HWY_INLINE V combine(V total, V next) {
    if constexpr (hwy::IsFloat<hn::TFromV<V>>()) {
      return hn::IfThenElse(hn::Or(hn::Gt(next, total), hn::IsNaN(next)), next, total);
    } else {
      return hn::Max(total, next);
    }
  }
};

struct BitAnd {
  template <class V>
  static HWY_INLINE V combine(V total, V next) {
    return hn::And(total, next);
  }
};

struct BitOr {
  template <class V>
  static HWY_INLINE V combine(V total, V next) {
    return hn::Or(total, next);
  }
};

struct BitXor {
  template <class V>
  static HWY_INLINE V combine(V total, V next) {
    return hn::Xor(total, next);
  }
};

// Which NaN comes out of a + b depends on the order of the operands in the instruction, and that
// order is the compiler's choice, which may differ between the body of a loop and its tail. With
// one NaN for all, every element has the same bits at every position, on every machine.
template <class D>
HWY_INLINE hn::VFromD<D> one_nan(D d, hn::VFromD<D> v) {
  return hn::IfThenElse(hn::IsNaN(v), hn::Set(d, std::numeric_limits<hn::TFromD<D>>::quiet_NaN()), v);
}

struct FinishNothing {
  template <class D>
  HWY_INLINE hn::VFromD<D> apply(D, hn::VFromD<D> v) const {
    return v;
  }
};

// For divisors that are a power of two (1 included): the reciprocal is exact, so this gives the bits
// of the division at a fraction of its time.
template <typename T>
struct FinishMultiply {
  T factor;
  template <class D>
  HWY_INLINE hn::VFromD<D> apply(D d, hn::VFromD<D> v) const {
    return one_nan(d, hn::Mul(v, hn::Set(d, factor)));
  }
};

template <typename T>
struct FinishDivide {
  T divisor;
  template <class D>
  HWY_INLINE hn::VFromD<D> apply(D d, hn::VFromD<D> v) const {
    return one_nan(d, hn::Div(v, hn::Set(d, divisor)));
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace lockstep
HWY_AFTER_NAMESPACE();

#endif
