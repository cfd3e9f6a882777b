#include "ddp/hooks/quantise.h"

#include <algorithm>
#include <bit>
#include <cfloat>
#include <cstdint>
#include <cstring>
#include <limits>

namespace lockstep::detail {

namespace {

constexpr float kLevels = 127;
// Below this the scale would not be a normal number.
constexpr float kSmallest = kLevels * FLT_MIN;

// As integers, absolute values order as numbers do, with inf and NaN at the top: so that no NaN is lost.
float largest(const float* values, std::size_t count) {
  std::int32_t result = 0;
  for (std::size_t i = 0; i < count; ++i) {
    result = std::max(result, std::bit_cast<std::int32_t>(values[i]) & 0x7fffffff);
  }
  return std::bit_cast<float>(result);
}

// Adding 1.5 * 2^23 rounds to the nearest integer and leaves it in the low bits of the mantissa, which is a
// vector instruction everywhere, other than std::lrint.
std::uint8_t nearest(float value) {
  return static_cast<std::uint8_t>(std::bit_cast<std::uint32_t>(value + 12582912.0F));
}

}  // namespace

void quantise(std::span<const float> values, const QuantisedLayout& layout, std::byte* message) {
  auto* bytes = reinterpret_cast<std::uint8_t*>(message) + layout.blocks * sizeof(float);
  for (std::size_t b = 0; b < layout.blocks; ++b, bytes += layout.block) {
    const std::size_t begin = std::min(b * layout.block, values.size());
    const std::size_t count = std::min(layout.block, values.size() - begin);
    const float* block = values.data() + begin;
    const float limit = largest(block, count);
    float scale = 0;
    float inverse = 0;
    if (!(limit <= FLT_MAX)) {
      scale = std::numeric_limits<float>::quiet_NaN();
    } else if (limit >= kSmallest) {
      scale = limit / kLevels;
      inverse = kLevels / limit;
    }
    std::memcpy(message + b * sizeof(float), &scale, sizeof(float));
    for (std::size_t i = 0; i < count; ++i) bytes[i] = nearest(block[i] * inverse);
    std::memset(bytes + count, 0, layout.block - count);
  }
}

void add_dequantised(const std::byte* message, const QuantisedLayout& layout, float factor, std::span<float> values) {
  const auto* bytes = reinterpret_cast<const std::int8_t*>(message) + layout.blocks * sizeof(float);
  for (std::size_t b = 0; b * layout.block < values.size(); ++b, bytes += layout.block) {
    float* block = values.data() + b * layout.block;
    const std::size_t count = std::min(layout.block, values.size() - b * layout.block);
    float scale = 0;
    std::memcpy(&scale, message + b * sizeof(float), sizeof(float));
    scale *= factor;
    for (std::size_t i = 0; i < count; ++i) block[i] += scale * static_cast<float>(bytes[i]);
  }
}

}  // namespace lockstep::detail
