// The position within an epoch. Snapshots store it; DistributedSampler continues from it.
#pragma once

#include <cstdint>

namespace lockstep {

// One position for all ranks together. Plain numbers, which a program may store in any form.
struct DistributedSamplerState {
  std::int64_t epoch = 0;
  std::int64_t seed = 0;
  std::int64_t dataset_size = 0;
  // How many positions of the epoch's global order all ranks together have consumed.
  std::int64_t consumed = 0;
  bool shuffle = true;

  friend bool operator==(const DistributedSamplerState&, const DistributedSamplerState&) = default;
};

}  // namespace lockstep
