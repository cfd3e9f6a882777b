// f32 values as 8-bit integers with one scale per block. Plain loops: the same bits on every host.
#pragma once

#include <cstddef>
#include <span>

namespace lockstep::detail {

// A message: the scales of all blocks as f32, then one byte per value.
struct QuantisedLayout {
  std::size_t block = 0;   // values per block
  std::size_t blocks = 0;  // in the message

  // Enough blocks for `count` values.
  static QuantisedLayout for_values(std::size_t count, std::size_t block) {
    return {block, (count + block - 1) / block};
  }
  std::size_t values() const { return block * blocks; }
  std::size_t bytes() const { return blocks * sizeof(float) + values(); }
};

// Writes layout.bytes() bytes; values beyond the given ones are zero. |value - decoded| is at most the
// block's largest |value| / 254 (and rounding), or 1.5e-36, below which a block is sent as zero. A block
// with an inf or NaN decodes to NaN.
void quantise(std::span<const float> values, const QuantisedLayout& layout, std::byte* message);

// values[i] += factor * decoded[i], for the first values.size() values of the message.
void add_dequantised(const std::byte* message, const QuantisedLayout& layout, float factor, std::span<float> values);

}  // namespace lockstep::detail
