// i8, u8, i32 and i64. Sums and products wrap: they are computed on unsigned integers.
#include "collectives/kernels/call.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "collectives/kernels/int.cpp"
#include "hwy/foreach_target.h"
//
#include <type_traits>

#include "collectives/kernels/loops-inl.h"
#include "collectives/kernels/ops-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep {
namespace HWY_NAMESPACE {

// Bytes as 16-bit integers, because there is no 8-bit multiplication; the low byte of a product of
// low bytes is right whatever the high bytes hold.
struct WideByte {
  using Element = std::uint8_t;
  using Accumulator = std::uint16_t;

  template <class D>
  static HWY_INLINE hn::VFromD<D> load(D d, const Element* from) {
    return hn::PromoteTo(d, hn::LoadU(hn::Rebind<std::uint8_t, D>(), from));
  }
  template <class D>
  static HWY_INLINE void store(hn::VFromD<D> v, D d, Element* to) {
    const hn::Rebind<std::uint8_t, D> du8;
    const auto low = hn::BitCast(hn::RebindToSigned<D>(), hn::And(v, hn::Set(d, std::uint16_t{0xff})));
    hn::StoreU(hn::DemoteTo(du8, low), du8, to);
  }
};

// Quotients of integers towards zero. 8 bits fit f32 and 32 bits fit f64 with enough bits to spare
// that the truncated quotient of the floats is the quotient of the integers.
template <typename T>
struct DivideBlock {
  int divisor;

  template <class Element>
  void operator()(Element* elements, std::size_t count) const {
    T* data = reinterpret_cast<T*>(elements);
    if constexpr (sizeof(T) == 8) {
      for (std::size_t i = 0; i < count; ++i) data[i] /= divisor;
    } else if constexpr (sizeof(T) == 4) {
      divide<double>(data, count);
    } else {
      divide<float>(data, count);
    }
  }

  template <typename Real>
  void divide(T* data, std::size_t count) const {
    const hn::ScalableTag<Real> d;
    const std::size_t width = hn::Lanes(d);
    std::size_t i = 0;
    for (; i + width <= count; i += width) quotient(d, data + i);
    for (; i < count; ++i) quotient(hn::CappedTag<Real, 1>(), data + i);
  }

  template <class D>
  HWY_INLINE void quotient(D d, T* data) const {
    const hn::Rebind<T, D> dt;
    const auto by = hn::Set(d, static_cast<hn::TFromD<D>>(divisor));
    if constexpr (sizeof(T) == 4) {
      hn::StoreU(hn::DemoteTo(dt, hn::Div(hn::PromoteTo(d, hn::LoadU(dt, data)), by)), dt, data);
    } else {
      const hn::Rebind<std::int32_t, D> d32;
      const auto real = hn::ConvertTo(d, hn::PromoteTo(d32, hn::LoadU(dt, data)));
      hn::StoreU(hn::DemoteTo(dt, hn::ConvertTo(d32, hn::Div(real, by))), dt, data);
    }
  }
};

template <class Format, class Op, typename T>
void reduce_blocked(const KernelCall& call) {
  if (call.divisor > 1) {
    Blocked<Format, Op>::run(call, FinishNothing(), DivideBlock<T>{call.divisor});
  } else {
    Blocked<Format, Op>::run(call, FinishNothing(), DivideNothing());
  }
}

template <typename T>
void reduce_int(const KernelCall& call) {
  using Unsigned = Plain<std::make_unsigned_t<T>>;
  switch (call.op) {
    case ReduceOp::sum:
    case ReduceOp::avg:
      if (call.divisor == 1 && call.srcs.size() <= 4) return reduce_fused<Unsigned, Sum>(call, FinishNothing());
      return reduce_blocked<Unsigned, Sum, T>(call);
    case ReduceOp::prod: return reduce_blocked<std::conditional_t<sizeof(T) == 1, WideByte, Unsigned>, Prod, T>(call);
    case ReduceOp::min: return reduce_blocked<Plain<T>, Min, T>(call);
    case ReduceOp::max: return reduce_blocked<Plain<T>, Max, T>(call);
    case ReduceOp::bit_and: return reduce_blocked<Unsigned, BitAnd, T>(call);
    case ReduceOp::bit_or: return reduce_blocked<Unsigned, BitOr, T>(call);
    case ReduceOp::bit_xor: return reduce_blocked<Unsigned, BitXor, T>(call);
  }
}

void reduce_i8(const KernelCall& call) { reduce_int<std::int8_t>(call); }
void reduce_u8(const KernelCall& call) { reduce_int<std::uint8_t>(call); }
void reduce_i32(const KernelCall& call) { reduce_int<std::int32_t>(call); }
void reduce_i64(const KernelCall& call) { reduce_int<std::int64_t>(call); }

}  // namespace HWY_NAMESPACE
}  // namespace lockstep
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep {

HWY_EXPORT(reduce_i8);
HWY_EXPORT(reduce_u8);
HWY_EXPORT(reduce_i32);
HWY_EXPORT(reduce_i64);

void reduce_i8(const KernelCall& call) { HWY_DYNAMIC_DISPATCH(reduce_i8)(call); }
void reduce_u8(const KernelCall& call) { HWY_DYNAMIC_DISPATCH(reduce_u8)(call); }
void reduce_i32(const KernelCall& call) { HWY_DYNAMIC_DISPATCH(reduce_i32)(call); }
void reduce_i64(const KernelCall& call) { HWY_DYNAMIC_DISPATCH(reduce_i64)(call); }

}  // namespace lockstep
#endif
