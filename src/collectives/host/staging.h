// How the staging memory of a rank is divided: two halves that alternate, each with one slot for
// every chunk of the operation, all of one size.
#pragma once

#include <algorithm>
#include <cstddef>

#include "transport/shared_area.h"

namespace lockstep {

class StagingLayout {
 public:
  // `slots` slots per half; a step moves about `step_bytes` in all, so that the segments stay in
  // cache between the core that writes and the one that reads.
  StagingLayout(std::size_t slots, std::size_t step_bytes)
      : slots_(slots),
        segment_bytes_(std::max<std::size_t>(
            kCacheLine, std::min(step_bytes, kStagingBytes / 2) / slots / kCacheLine * kCacheLine)) {}

  // The size of a slot: bytes of one chunk that a step moves.
  std::size_t segment_bytes() const { return segment_bytes_; }
  // `staging`: a rank's staging memory.
  std::byte* slot(std::byte* staging, std::size_t step, std::size_t index) const {
    return staging + ((step % 2) * slots_ + index) * segment_bytes_;
  }

 private:
  std::size_t slots_;
  std::size_t segment_bytes_;
};

// Larger steps on an oversubscribed host, because every synchronisation costs context switches there.
inline std::size_t staging_step_bytes(bool oversubscribed) {
  return oversubscribed ? std::size_t{1} << 20 : std::size_t{256} << 10;
}

}  // namespace lockstep
