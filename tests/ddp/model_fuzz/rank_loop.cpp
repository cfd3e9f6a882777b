#include "ddp/model_fuzz/rank_loop.h"

#include <fmt/format.h>
#include <torch/torch.h>

#include <numeric>

#include "ddp/model_fuzz/run_case.h"
#include "ddp/model_fuzz/shrink.h"
#include "lockstep/ddp/init.h"

namespace lockstep::fuzz {

RankLoop::RankLoop() {
  torch::set_num_threads(1);
  world_ = init_process_group({.timeout = std::chrono::seconds(60)});
}

RankLoop::~RankLoop() {
  groups_.clear();
  world_.reset();
  destroy_process_group();
}

int RankLoop::rank() const { return world_->rank(); }

const RankLoop::Groups& RankLoop::groups_of(int world, int generation) {
  Groups& groups = groups_[world];
  if (groups.generation != generation) groups = {generation, nullptr, nullptr};
  if (!groups.ddp) {
    std::vector<int> ranks(static_cast<std::size_t>(world));
    std::iota(ranks.begin(), ranks.end(), 0);
    groups.ddp = world_->new_group(ranks, fmt::format("ddp {} {}", world, generation));
    groups.check = world_->new_group(ranks, fmt::format("check {} {}", world, generation));
  }
  return groups;
}

std::optional<Outcome> RankLoop::run(int generation, std::uint64_t seed, const std::vector<int>& edits) {
  const Case item = case_of(seed, edits);
  if (rank() >= item.training.world) return std::nullopt;
  const Groups& groups = groups_of(item.training.world, generation);
  return run_case(item, groups.ddp, groups.check);
}

}  // namespace lockstep::fuzz
