#include <cstdint>
#include <cstring>

#include "collectives/kernels/call.h"
#include "collectives/kernels/kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "collectives/kernels/copy.cpp"
#include "hwy/foreach_target.h"
//
#include "hwy/cache_control.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Whole lines from `from` to `to`, which is aligned to a line.
void stream_lines(std::uint8_t* HWY_RESTRICT to, const std::uint8_t* HWY_RESTRICT from, std::size_t bytes) {
  const hn::CappedTag<std::uint8_t, 64> d;
  const std::size_t width = hn::Lanes(d);
  for (std::size_t i = 0; i < bytes; i += width) hn::Stream(hn::LoadU(d, from + i), d, to + i);
  hwy::FlushStream();
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep {
namespace {

constexpr std::size_t kLine = 64;
// Below this the fence at the end costs more than the ownership of the lines.
constexpr std::size_t kStreamFrom = 4096;

}  // namespace

HWY_EXPORT(stream_lines);

void copy_bytes(std::byte* dst, const std::byte* src, std::size_t bytes) {
  if (bytes < kStreamFrom) {
    std::memcpy(dst, src, bytes);
    return;
  }
  const std::size_t head = (kLine - reinterpret_cast<std::uintptr_t>(dst) % kLine) % kLine;
  const std::size_t lines = (bytes - head) / kLine * kLine;
  const std::size_t tail = bytes - head - lines;
  std::memcpy(dst, src, head);
  std::memcpy(dst + head + lines, src + head + lines, tail);
  HWY_DYNAMIC_DISPATCH(stream_lines)
  (reinterpret_cast<std::uint8_t*>(dst + head), reinterpret_cast<const std::uint8_t*>(src + head), lines);
}

}  // namespace lockstep
#endif
