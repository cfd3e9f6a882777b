// How the elements of a buffer are divided among the ranks of a host.
#pragma once

#include <algorithm>
#include <cstddef>

namespace lockstep {

struct ElementRange {
  std::size_t begin = 0;  // elements
  std::size_t count = 0;
};

// Chunk `index` of `chunks` nearly equal chunks of `count` elements. Boundaries fall on multiples of 64 bytes, so that
// no two ranks write to one cache line of an aligned buffer; the last chunks may be empty. chunk_of() in stream/task.h
// divides without regard to cache lines.
inline ElementRange aligned_chunk(std::size_t count, std::size_t chunks, std::size_t index, std::size_t element_bytes) {
  const std::size_t grain = std::max<std::size_t>(1, 64 / element_bytes);
  const std::size_t grains = (count + grain - 1) / grain;
  const std::size_t per_chunk = (grains + chunks - 1) / chunks * grain;
  const std::size_t begin = std::min(count, index * per_chunk);
  return ElementRange{begin, std::min(count - begin, per_chunk)};
}

}  // namespace lockstep
