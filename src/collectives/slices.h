// How a buffer of elements is divided among ranks.
#pragma once

#include <algorithm>
#include <cstddef>

namespace lockstep {

struct Slice {
  std::size_t begin = 0;  // elements
  std::size_t count = 0;
};

// Part `index` of `parts` nearly equal parts of `count` elements. Boundaries fall on multiples of
// 64 bytes, so that no two ranks write to one cache line of an aligned buffer; the last parts may
// be empty.
inline Slice slice_of(std::size_t count, std::size_t parts, std::size_t index, std::size_t element_bytes) {
  const std::size_t grain = std::max<std::size_t>(1, 64 / element_bytes);
  const std::size_t grains = (count + grain - 1) / grain;
  const std::size_t per_part = (grains + parts - 1) / parts * grain;
  const std::size_t begin = std::min(count, index * per_part);
  return Slice{begin, std::min(count - begin, per_part)};
}

}  // namespace lockstep
