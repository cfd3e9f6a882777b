// Which GPU a rank uses. Pure, so that it can be tested without one.
#pragma once

#include <array>
#include <span>
#include <string>
#include <vector>

#include "lockstep/base/status.h"

namespace lockstep::detail {

// What one rank sees of its host's GPUs.
struct GpuView {
  int local_rank = 0;  // among the ranks of this host
  int local_size = 1;  // how many these are
  int visible = 0;     // GPUs that this process can see
};

// The number of the rank's GPU among those that it sees: its local rank; or the only one, if every process was given
// one of its own (CUDA_VISIBLE_DEVICES, Slurm's --gpus-per-task). Else an error that names what is missing.
Result<int> choose_gpu(const GpuView& view);

using GpuId = std::array<unsigned char, 16>;  // identifies a GPU: the same for two processes that use one GPU

// Ok if no two ranks use the same GPU. `ranks`: how to name each, in rank order.
Status check_distinct_gpus(std::span<const GpuId> gpus, const std::vector<std::string>& ranks);

}  // namespace lockstep::detail
