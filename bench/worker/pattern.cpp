#include "bench/worker/pattern.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <random>

namespace lockstep::bench {
namespace {

constexpr std::uint64_t kShift = 31;

std::uint16_t to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  return static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

// For the finite, normal values of the tables and their sums.
std::uint16_t to_f16(double value) {
  if (value == 0) return std::signbit(value) ? 0x8000 : 0;
  const int exponent = std::max(std::ilogb(value), -14);
  const double mantissa = std::nearbyint(std::ldexp(std::fabs(value), 10 - exponent));
  const auto bits = static_cast<std::uint16_t>(mantissa + ((exponent + 14) << 10));
  return static_cast<std::uint16_t>(bits | (std::signbit(value) ? 0x8000 : 0));
}

double from_f16(std::uint16_t bits) {
  const int exponent = (bits >> 10) & 31;
  const int mantissa = bits & 1023;
  const double magnitude = exponent == 0    ? std::ldexp(mantissa, -24)
                           : exponent == 31 ? (mantissa ? std::nan("") : INFINITY)
                                            : std::ldexp(1024 + mantissa, exponent - 25);
  return bits & 0x8000 ? -magnitude : magnitude;
}

template <typename T>
void store(T value, std::byte* out) {
  std::memcpy(out, &value, sizeof value);
}
template <typename T>
T load(const std::byte* in) {
  T value;
  std::memcpy(&value, in, sizeof value);
  return value;
}

// What one rounding may lose, relative to a value below 1.
double unit_roundoff(DType dtype) {
  switch (dtype) {
    case DType::f32: return 0x1p-24;
    case DType::f64: return 0x1p-53;
    case DType::f16: return 0x1p-11;
    case DType::bf16: return 0x1p-8;
    default: return 0;
  }
}

// Calls visit(position in the table, position in the data, elements) for each piece that lies
// within one period.
template <typename RegistrationClient>
void for_each_piece(std::size_t first, std::size_t count, std::uint64_t iteration, const RegistrationClient& visit) {
  std::size_t at = (first + iteration * kShift) % Pattern::kPeriod;
  for (std::size_t done = 0; done < count;) {
    const std::size_t n = std::min(count - done, Pattern::kPeriod - at);
    visit(at, done, n);
    done += n;
    at = 0;
  }
}

}  // namespace

void encode(DType dtype, double value, std::byte* out) {
  switch (dtype) {
    case DType::f32: return store(static_cast<float>(value), out);
    case DType::f64: return store(value, out);
    case DType::f16: return store(to_f16(value), out);
    case DType::bf16: return store(to_bf16(static_cast<float>(value)), out);
    case DType::i8: return store(static_cast<std::int8_t>(static_cast<std::int64_t>(value)), out);
    case DType::u8: return store(static_cast<std::uint8_t>(static_cast<std::int64_t>(value)), out);
    case DType::i32: return store(static_cast<std::int32_t>(value), out);
    case DType::i64: return store(static_cast<std::int64_t>(value), out);
  }
}

double decode(DType dtype, const std::byte* element) {
  switch (dtype) {
    case DType::f32: return load<float>(element);
    case DType::f64: return load<double>(element);
    case DType::f16: return from_f16(load<std::uint16_t>(element));
    case DType::bf16: return std::bit_cast<float>(static_cast<std::uint32_t>(load<std::uint16_t>(element)) << 16);
    case DType::i8: return load<std::int8_t>(element);
    case DType::u8: return load<std::uint8_t>(element);
    case DType::i32: return load<std::int32_t>(element);
    case DType::i64: return static_cast<double>(load<std::int64_t>(element));
  }
  return 0;
}

Pattern::Pattern(DType dtype, int ranks)
    : dtype_(dtype), element_(element_size(dtype)), sums_(kPeriod), rounded_sums_(kPeriod * element_) {
  for (int rank = 0; rank < ranks; ++rank) {
    std::mt19937_64 random(static_cast<std::uint64_t>(rank) * 7919 + 1);
    std::vector<std::byte>& table = tables_.emplace_back(kPeriod * element_);
    for (std::size_t i = 0; i < kPeriod; ++i) {
      // Few values for integers, so that 8 bits hold the sum of many ranks.
      const double value =
          is_integer(dtype) ? static_cast<double>(random() % 8) : static_cast<double>(random() >> 11) * 0x1p-52 - 1.0;
      encode(dtype, value, &table[i * element_]);
      sums_[i] += decode(dtype, &table[i * element_]);
    }
  }
  for (std::size_t i = 0; i < kPeriod; ++i) encode(dtype, sums_[i], &rounded_sums_[i * element_]);
  // Each of at most `ranks` roundings loses at most half a unit of a sum below `ranks`.
  tolerance_ = unit_roundoff(dtype) * ranks * ranks;
}

void Pattern::fill(void* out, std::size_t first, std::size_t count, int rank, std::uint64_t iteration) const {
  const std::byte* const table = tables_[static_cast<std::size_t>(rank)].data();
  auto* const bytes = static_cast<std::byte*>(out);
  for_each_piece(first, count, iteration, [&](std::size_t at, std::size_t done, std::size_t n) {
    std::memcpy(bytes + done * element_, table + at * element_, n * element_);
  });
}

std::uint64_t Pattern::wrong_copies(const void* data, std::size_t first, std::size_t count, int rank,
                                    std::uint64_t iteration) const {
  const std::byte* const table = tables_[static_cast<std::size_t>(rank)].data();
  const auto* const bytes = static_cast<const std::byte*>(data);
  std::uint64_t wrong = 0;
  for_each_piece(first, count, iteration, [&](std::size_t at, std::size_t done, std::size_t n) {
    if (std::memcmp(bytes + done * element_, table + at * element_, n * element_) == 0) return;
    for (std::size_t i = 0; i < n; ++i)
      wrong += std::memcmp(bytes + (done + i) * element_, table + (at + i) * element_, element_) != 0;
  });
  return wrong;
}

std::uint64_t Pattern::wrong_sums(const void* data, std::size_t first, std::size_t count,
                                  std::uint64_t iteration) const {
  const auto* const bytes = static_cast<const std::byte*>(data);
  std::uint64_t wrong = 0;
  for_each_piece(first, count, iteration, [&](std::size_t at, std::size_t done, std::size_t n) {
    if (std::memcmp(bytes + done * element_, &rounded_sums_[at * element_], n * element_) == 0) return;
    for (std::size_t i = 0; i < n; ++i) {
      const std::byte* const expected = &rounded_sums_[(at + i) * element_];
      const std::byte* const element = bytes + (done + i) * element_;
      if (std::memcmp(element, expected, element_) == 0) continue;
      // Written so that NaN counts as wrong.
      wrong += !(std::fabs(decode(dtype_, element) - sums_[at + i]) <= tolerance_);
    }
  });
  return wrong;
}

std::uint64_t digest(const void* data, std::size_t bytes) {
  constexpr std::uint64_t kPrime = 0x9e3779b97f4a7c15;
  const auto* at = static_cast<const std::byte*>(data);
  std::uint64_t lanes[4] = {1, 2, 3, 4};
  for (; bytes >= 32; at += 32, bytes -= 32) {
    for (int lane = 0; lane < 4; ++lane)
      lanes[lane] = std::rotl((lanes[lane] ^ load<std::uint64_t>(at + 8 * lane)) * kPrime, 29);
  }
  std::uint64_t all = bytes;
  for (const std::uint64_t lane : lanes) all = std::rotl((all ^ lane) * kPrime, 29);
  for (; bytes > 0; ++at, --bytes) all = std::rotl((all ^ static_cast<std::uint64_t>(*at)) * kPrime, 29);
  return all;
}

}  // namespace lockstep::bench
