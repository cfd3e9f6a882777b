#include "ddp/backends/c10d/gpu_choice.h"

#include <fmt/format.h>

#include <map>

namespace lockstep::detail {

Result<int> choose_gpu(const GpuView& view) {
  if (view.visible >= view.local_size) return view.local_rank;
  if (view.visible == 1) return 0;
  if (view.visible == 0) {
    return Status(
        StatusCode::not_found,
        "backend nccl needs a GPU, but this process sees none; check nvidia-smi and CUDA_VISIBLE_DEVICES, or ask "
        "for backend \"lockstep\" and keep the model on the CPU");
  }
  return Status(
      StatusCode::invalid_argument,
      fmt::format("backend nccl needs a GPU for each rank, but {} ranks of this host see {} GPUs; start at most "
                  "{} processes on it (--nproc-per-node {})",
                  view.local_size, view.visible, view.visible, view.visible));
}

Status check_distinct_gpus(std::span<const GpuId> gpus, const std::vector<std::string>& ranks) {
  std::map<GpuId, std::size_t> first_user;
  for (std::size_t rank = 0; rank < gpus.size(); ++rank) {
    const auto [found, is_new] = first_user.emplace(gpus[rank], rank);
    if (is_new) continue;
    return Status(
        StatusCode::invalid_argument,
        fmt::format("backend nccl needs a GPU for each rank, but {} and {} would use the same one; start fewer "
                    "processes per host, or give each another one (CUDA_VISIBLE_DEVICES)",
                    ranks[found->second], ranks[rank]));
  }
  return {};
}

}  // namespace lockstep::detail
