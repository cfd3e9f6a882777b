// The formats f16 and bf16: stored in 16 bits, computed in f32, rounded to nearest even.
// Included once per instruction set: the guard toggles.
#if defined(LOCKSTEP_KERNELS_HALF_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LOCKSTEP_KERNELS_HALF_INL_H_
#undef LOCKSTEP_KERNELS_HALF_INL_H_
#else
#define LOCKSTEP_KERNELS_HALF_INL_H_
#endif

#include <cstdint>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// The 16 low bits of each element, in memory order.
template <class D>
HWY_INLINE hn::VFromD<D> load_bits16(D du32, const std::uint16_t* from) {
  return hn::PromoteTo(du32, hn::LoadU(hn::Rebind<std::uint16_t, D>(), from));
}
template <class D>
HWY_INLINE void store_bits16(hn::VFromD<D> bits, D, std::uint16_t* to) {
  const hn::Rebind<std::uint16_t, D> du16;
  hn::StoreU(hn::DemoteTo(du16, hn::BitCast(hn::RebindToSigned<D>(), bits)), du16, to);
}

// store() takes vectors in which every NaN is the one with the top mantissa bit alone (one_nan).
struct BrainFloat {
  using Element = std::uint16_t;
  using Accumulator = float;

  template <class D>
  static HWY_INLINE hn::VFromD<D> load(D d, const Element* from) {
    const hn::RebindToUnsigned<D> du;
    return hn::BitCast(d, hn::ShiftLeft<16>(load_bits16(du, from)));
  }

  // Highway's own conversion truncates.
  template <class D>
  static HWY_INLINE void store(hn::VFromD<D> v, D, Element* to) {
    const hn::RebindToUnsigned<D> du;
    const auto bits = hn::BitCast(du, v);
    const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1u));
    const auto rounded = hn::Add(bits, hn::Add(odd, hn::Set(du, 0x7fffu)));
    store_bits16(hn::ShiftRight<16>(rounded), du, to);
  }
};

#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2 && !defined(HWY_DISABLE_F16C)

struct HalfFloat {
  using Element = std::uint16_t;
  using Accumulator = float;

  template <class D>
  static HWY_INLINE hn::VFromD<D> load(D d, const Element* from) {
    const hn::Rebind<hwy::float16_t, D> d16;
    const hn::Rebind<std::uint16_t, D> du16;
    return hn::PromoteTo(d, hn::BitCast(d16, hn::LoadU(du16, from)));
  }

  template <class D>
  static HWY_INLINE void store(hn::VFromD<D> v, D, Element* to) {
    const hn::Rebind<hwy::float16_t, D> d16;
    const hn::Rebind<std::uint16_t, D> du16;
    hn::StoreU(hn::BitCast(du16, hn::DemoteTo(d16, v)), du16, to);
  }
};

#else

// Without conversion instructions. Highway's own emulation truncates and loses infinities, hence
// the arithmetic on bits here: no step of it makes a subnormal f32, so flush-to-zero is harmless.
struct HalfFloat {
  using Element = std::uint16_t;
  using Accumulator = float;

  template <class D>
  static HWY_INLINE hn::VFromD<D> load(D d, const Element* from) {
    const hn::RebindToUnsigned<D> du;
    const auto half = load_bits16(du, from);
    const auto sign = hn::ShiftLeft<16>(hn::And(half, hn::Set(du, 0x8000u)));
    const auto magnitude = hn::ShiftLeft<13>(hn::And(half, hn::Set(du, 0x7fffu)));
    const auto exponent = hn::And(magnitude, hn::Set(du, 0x1fu << 23));
    const auto rebiased = hn::Add(magnitude, hn::Set(du, (127u - 15u) << 23));
    const auto infinite_or_nan = hn::Add(rebiased, hn::Set(du, (128u - 16u) << 23));
    // A subnormal m * 2^-24 is (1 + m/2^10) * 2^-14 - 2^-14.
    const auto shifted = hn::BitCast(d, hn::Add(rebiased, hn::Set(du, 1u << 23)));
    const auto subnormal = hn::BitCast(du, hn::Sub(shifted, hn::BitCast(d, hn::Set(du, 113u << 23))));
    auto bits = hn::IfThenElse(hn::Eq(exponent, hn::Set(du, 0x1fu << 23)), infinite_or_nan, rebiased);
    bits = hn::IfThenElse(hn::Eq(exponent, hn::Zero(du)), subnormal, bits);
    return hn::BitCast(d, hn::Or(bits, sign));
  }

  template <class D>
  static HWY_INLINE void store(hn::VFromD<D> v, D d, Element* to) {
    const hn::RebindToUnsigned<D> du;
    const hn::RebindToSigned<D> di;
    const auto bits = hn::BitCast(du, v);
    const auto sign = hn::And(bits, hn::Set(du, 0x80000000u));
    const auto magnitude = hn::Xor(bits, sign);
    const auto signed_magnitude = hn::BitCast(di, magnitude);
    // From 2^16 on: infinity, or the one NaN. Values from 65520 on round up into infinity by themselves.
    const auto is_nan = hn::Gt(signed_magnitude, hn::Set(di, 255 << 23));
    const auto huge = hn::IfThenElse(is_nan, hn::Set(di, 0x7e00), hn::Set(di, 0x7c00));
    const auto is_huge = hn::Gt(signed_magnitude, hn::Set(di, ((127 + 16) << 23) - 1));
    // Below 2^-14: adding 1/2 makes the adder round to a multiple of 2^-24, the step of subnormals.
    const auto is_small = hn::Lt(signed_magnitude, hn::Set(di, 113 << 23));
    const auto half = hn::Set(du, 126u << 23);
    const auto small = hn::Sub(hn::BitCast(du, hn::Add(hn::BitCast(d, magnitude), hn::BitCast(d, half))), half);
    // Between: re-bias the exponent and round the 13 bits that go away to nearest even.
    const auto odd = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(du, 1u));
    const auto rebias_and_round = hn::Set(du, static_cast<std::uint32_t>((15 - 127) * (1 << 23)) + 0xfffu);
    const auto normal = hn::ShiftRight<13>(hn::Add(hn::Add(magnitude, rebias_and_round), odd));
    auto result = hn::IfThenElse(is_small, hn::BitCast(di, small), hn::BitCast(di, normal));
    result = hn::IfThenElse(is_huge, huge, result);
    store_bits16(hn::Or(hn::BitCast(du, result), hn::ShiftRight<16>(sign)), du, to);
  }
};

#endif

}  // namespace HWY_NAMESPACE
}  // namespace lockstep
HWY_AFTER_NAMESPACE();

#endif
