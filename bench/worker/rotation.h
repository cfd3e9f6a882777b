// Which part of a rank's arena the next operation uses.
//
// Cold: operations walk through slots that together exceed the last-level cache, so that no buffer
// is still cached from its last use. Warm: always the first slot.
#pragma once

#include <cstddef>

#include "bench/worker/operation.h"

namespace lockstep::bench {

// Slots start on a page boundary, and so do the input and the output in them.
inline constexpr std::size_t kSlotAlignment = 4096;

// The bytes of the arena that one operation of this shape uses.
std::size_t slot_bytes(const Shape& shape, DType dtype);
// The size of an arena in which operations of up to this shape are cold: twice the cache, and at least two slots.
std::size_t arena_bytes(const Shape& largest, DType dtype, std::size_t cache_bytes);

class Rotation {
 public:
  Rotation(std::byte* arena, std::size_t bytes) : arena_(arena), bytes_(bytes) {}

  // The next operation's buffers. The arena must have room for one slot.
  Operation next(Collective collective, DType dtype, const Shape& shape, bool cold);

 private:
  std::byte* arena_;
  std::size_t bytes_;
  std::size_t at_ = 0;
};

}  // namespace lockstep::bench
