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
  world_ = init_process_group({.timeout = std::chrono::seconds(20)});
}

RankLoop::~RankLoop() {
  groups_.clear();
  world_.reset();
  destroy_process_group();
}

int RankLoop::rank() const { return world_->rank(); }

RankLoop::Groups& RankLoop::groups_of(int world) {
  Groups& groups = groups_[world];
  if (!groups.ddp) {
    std::vector<int> ranks(static_cast<std::size_t>(world));
    std::iota(ranks.begin(), ranks.end(), 0);
    groups.ddp = world_->new_group(ranks, fmt::format("ddp {} {}", world, generation_));
    groups.check = world_->new_group(ranks, fmt::format("check {} {}", world, generation_));
  }
  return groups;
}

std::optional<Outcome> RankLoop::run(int generation, std::uint64_t seed, const std::vector<int>& edits) {
  if (generation != generation_) {
    generation_ = generation;
    groups_.clear();
  }
  const Case item = case_of(seed, edits);
  if (rank() >= item.training.world) return std::nullopt;
  const Groups& groups = groups_of(item.training.world);
  return run_case(item, groups.ddp, groups.check);
}

}  // namespace lockstep::fuzz
