// For the kernels' tests: what reduce() promises, computed element by element without vectors, and
// inputs that reveal a wrong order, a wrong rounding or a lost NaN.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <span>
#include <type_traits>
#include <vector>

#include "lockstep/collectives/types.h"

namespace lockstep::kernels_test {

constexpr DType kDTypes[] = {DType::f32, DType::f64, DType::f16, DType::bf16,
                             DType::i8,  DType::u8,  DType::i32, DType::i64};
constexpr ReduceOp kOps[] = {ReduceOp::sum, ReduceOp::avg,     ReduceOp::prod,   ReduceOp::min,
                             ReduceOp::max, ReduceOp::bit_and, ReduceOp::bit_or, ReduceOp::bit_xor};

inline bool allowed(DType dtype, ReduceOp op) { return is_integer(dtype) || op < ReduceOp::bit_and; }

using Bytes = std::vector<std::byte>;

// A binary floating-point format of 16 bits.
struct Small {
  int mantissa_bits;
  int min_exponent;  // of the smallest normal number
  std::uint16_t infinity;
  std::uint16_t nan;
};
constexpr Small kF16{10, -14, 0x7c00, 0x7e00};
constexpr Small kBF16{7, -126, 0x7f80, 0x7fc0};

inline float widen(Small format, std::uint16_t bits) {
  const int mantissa = bits & ((1 << format.mantissa_bits) - 1);
  const int exponent = (bits & 0x7fff) >> format.mantissa_bits;
  const float sign = (bits & 0x8000) != 0 ? -1.0f : 1.0f;
  if ((bits & 0x7fff) == format.infinity) return sign * std::numeric_limits<float>::infinity();
  if ((bits & 0x7fff) > format.infinity) return std::numeric_limits<float>::quiet_NaN();
  const int whole = exponent == 0 ? mantissa : mantissa + (1 << format.mantissa_bits);
  return sign *
         static_cast<float>(std::ldexp(whole, std::max(exponent, 1) - 1 + format.min_exponent - format.mantissa_bits));
}

// Rounds to nearest even through the definition: the nearest multiple of the last place.
inline std::uint16_t narrow(Small format, float value) {
  if (std::isnan(value)) return format.nan;
  const std::uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  if (std::isinf(value)) return sign | format.infinity;
  const double magnitude = std::fabs(static_cast<double>(value));
  if (magnitude == 0) return sign;
  const int exponent = std::max(std::ilogb(magnitude), format.min_exponent);
  const double places = std::nearbyint(std::ldexp(magnitude, format.mantissa_bits - exponent));
  // Counting up in places carries from the mantissa into the exponent, and at the end to infinity.
  const double bits = places + (static_cast<double>(exponent - format.min_exponent) * (1 << format.mantissa_bits));
  return sign | static_cast<std::uint16_t>(std::min<double>(bits, format.infinity));
}

template <typename T>
T combine_real(ReduceOp op, T total, T next) {
  switch (op) {
    case ReduceOp::prod: return total * next;
    case ReduceOp::min: return std::isnan(total) ? total : std::isnan(next) || next < total ? next : total;
    case ReduceOp::max: return std::isnan(total) ? total : std::isnan(next) || next > total ? next : total;
    default: return total + next;
  }
}

template <typename T>
T combine_int(ReduceOp op, T total, T next) {
  const auto a = static_cast<std::uint64_t>(total), b = static_cast<std::uint64_t>(next);
  switch (op) {
    case ReduceOp::prod: return static_cast<T>(a * b);
    case ReduceOp::min: return std::min(total, next);
    case ReduceOp::max: return std::max(total, next);
    case ReduceOp::bit_and: return static_cast<T>(a & b);
    case ReduceOp::bit_or: return static_cast<T>(a | b);
    case ReduceOp::bit_xor: return static_cast<T>(a ^ b);
    default: return static_cast<T>(a + b);
  }
}

template <typename T>
T element(const Bytes& bytes, std::size_t i) {
  T value;
  std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
  return value;
}

template <typename T>
T expected_real(ReduceOp op, const std::vector<T>& inputs, int divisor) {
  T total = inputs[0];
  for (std::size_t k = 1; k < inputs.size(); ++k) total = combine_real(op, total, inputs[k]);
  if (divisor > 1) total /= static_cast<T>(divisor);
  return std::isnan(total) ? std::numeric_limits<T>::quiet_NaN() : total;
}

template <typename T>
T expected_element(ReduceOp op, const std::vector<T>& inputs, int divisor) {
  if (inputs.size() == 1 && divisor <= 1) return inputs[0];  // a copy keeps all bits
  if constexpr (std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16>) {
    const Small format = std::is_same_v<T, Float16> ? kF16 : kBF16;
    std::vector<float> wide;
    for (T input : inputs) wide.push_back(widen(format, input.bits));
    return {narrow(format, expected_real(op, wide, divisor))};
  } else if constexpr (std::is_floating_point_v<T>) {
    return expected_real(op, inputs, divisor);
  } else {
    T total = inputs[0];
    for (std::size_t k = 1; k < inputs.size(); ++k) total = combine_int(op, total, inputs[k]);
    return divisor > 1 ? static_cast<T>(total / divisor) : total;
  }
}

template <typename T>
Bytes expected_all(ReduceOp op, std::span<const Bytes> srcs, std::size_t count, int divisor) {
  Bytes result(count * sizeof(T));
  std::vector<T> inputs(srcs.size());
  for (std::size_t i = 0; i < count; ++i) {
    for (std::size_t k = 0; k < srcs.size(); ++k) inputs[k] = element<T>(srcs[k], i);
    const T value = expected_element(op, inputs, divisor);
    std::memcpy(result.data() + i * sizeof(T), &value, sizeof(T));
  }
  return result;
}

inline Bytes expected(DType dtype, ReduceOp op, std::span<const Bytes> srcs, std::size_t count, int divisor) {
  switch (dtype) {
    case DType::f32: return expected_all<float>(op, srcs, count, divisor);
    case DType::f64: return expected_all<double>(op, srcs, count, divisor);
    case DType::f16: return expected_all<Float16>(op, srcs, count, divisor);
    case DType::bf16: return expected_all<BFloat16>(op, srcs, count, divisor);
    case DType::i8: return expected_all<std::int8_t>(op, srcs, count, divisor);
    case DType::u8: return expected_all<std::uint8_t>(op, srcs, count, divisor);
    case DType::i32: return expected_all<std::int32_t>(op, srcs, count, divisor);
    case DType::i64: return expected_all<std::int64_t>(op, srcs, count, divisor);
  }
  return {};
}

// One element in a float format given by its number of mantissa and exponent bits: of ordinary
// size, huge, tiny, subnormal, zero or infinite of either sign, or a NaN with a payload.
inline std::uint64_t hard_real(std::mt19937_64& random, int mantissa_bits, int exponent_bits) {
  const std::uint64_t sign = (random() & 1) << (mantissa_bits + exponent_bits);
  const std::uint64_t mantissa = random() & ((std::uint64_t{1} << mantissa_bits) - 1);
  const std::uint64_t top = (std::uint64_t{1} << exponent_bits) - 1;
  std::uint64_t exponent = 0;
  switch (random() % 24) {
    case 0: return sign;
    case 1: return sign | top << mantissa_bits;
    case 2: return sign | top << mantissa_bits | mantissa;
    case 3: exponent = 0; break;
    case 4: exponent = 1 + random() % 3; break;
    case 5: exponent = top - 1 - random() % 3; break;
    case 6:
    case 7: exponent = random() % top; break;
    default: exponent = top / 2 - 3 + random() % 6; break;
  }
  return sign | exponent << mantissa_bits | mantissa;
}

inline Bytes hard_inputs(DType dtype, std::size_t count, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const std::size_t size = element_size(dtype);
  Bytes bytes(count * size);
  for (std::size_t i = 0; i < count; ++i) {
    std::uint64_t bits = 0;
    switch (dtype) {
      case DType::f32: bits = hard_real(random, 23, 8); break;
      case DType::f64: bits = hard_real(random, 52, 11); break;
      case DType::f16: bits = hard_real(random, 10, 5); break;
      case DType::bf16: bits = hard_real(random, 7, 8); break;
      default: bits = random() >> (random() % 3 == 0 ? 61 : 0); break;
    }
    std::memcpy(bytes.data() + i * size, &bits, size);
  }
  return bytes;
}

}  // namespace lockstep::kernels_test
