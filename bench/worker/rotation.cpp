#include "bench/worker/rotation.h"

#include <algorithm>

namespace lockstep::bench {
namespace {

std::size_t pages(std::size_t bytes) { return (bytes + kSlotAlignment - 1) / kSlotAlignment * kSlotAlignment; }

}  // namespace

std::size_t slot_bytes(const Shape& shape, DType dtype) {
  const std::size_t input = pages(shape.input_count * element_size(dtype));
  const std::size_t output = shape.in_place ? 0 : pages(shape.output_count * element_size(dtype));
  return std::max(kSlotAlignment, input + output);
}

std::size_t arena_bytes(const Shape& largest, DType dtype, std::size_t cache_bytes) {
  return std::max(2 * pages(cache_bytes), 2 * slot_bytes(largest, dtype));
}

Operation Rotation::next(Collective collective, DType dtype, const Shape& shape, bool cold) {
  const std::size_t slot = slot_bytes(shape, dtype);
  if (!cold || at_ + slot > bytes_) at_ = 0;
  Operation operation{collective, dtype, shape, arena_ + at_, arena_ + at_};
  if (!shape.in_place) operation.output = arena_ + at_ + pages(shape.input_count * element_size(dtype));
  at_ += slot;
  return operation;
}

}  // namespace lockstep::bench
