// How far an epoch has come. Snapshots store it; DistributedSampler continues from it.
#pragma once

#include <cstdint>

namespace lockstep {

// For all ranks together. Plain numbers, to be stored as the program likes.
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
