// How the staging room of a rank is divided: two halves that alternate, each with one block for
// every block of the operation, all of one size.
#pragma once

#include <algorithm>
#include <cstddef>

#include "transport/shared_area.h"

namespace lockstep {

class StagingLayout {
 public:
  // `blocks` blocks per half; a step moves about `step_bytes` in all, so that the pieces stay in
  // cache between the core that writes and the one that reads.
  StagingLayout(std::size_t blocks, std::size_t step_bytes)
      : blocks_(blocks),
        piece_(std::max<std::size_t>(kCacheLine,
                                     std::min(step_bytes, kStagingBytes / 2) / blocks / kCacheLine * kCacheLine)) {}

  // Bytes of one block that a step moves.
  std::size_t piece_bytes() const { return piece_; }
  std::byte* block(SharedArea& area, std::size_t step, std::size_t block) const {
    return area.staging + ((step % 2) * blocks_ + block) * piece_;
  }

 private:
  std::size_t blocks_;
  std::size_t piece_;
};

// Larger steps where every synchronisation costs context switches.
inline std::size_t staging_step_bytes(bool oversubscribed) {
  return oversubscribed ? std::size_t{1} << 20 : std::size_t{256} << 10;
}

}  // namespace lockstep
