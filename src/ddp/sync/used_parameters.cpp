#include "ddp/sync/used_parameters.h"

#include <algorithm>
#include <cstring>

namespace lockstep::detail {

UsedParameters::UsedParameters(std::shared_ptr<ProcessGroup> group, std::size_t parameter_count)
    : group_(std::move(group)), here_(parameter_count, 0), anywhere_(parameter_count, 1) {}

std::int64_t UsedParameters::unused_here() const { return std::count(here_.begin(), here_.end(), 0); }

void UsedParameters::begin_exchange() {
  map_ = at::empty({static_cast<std::int64_t>(here_.size())}, at::kByte);
  std::memcpy(map_.data_ptr(), here_.data(), here_.size());
  exchange_ = group_->all_reduce(map_, {.op = ReduceOp::max});
}

void UsedParameters::end_exchange() {
  if (!map_.defined()) return;
  exchange_.wait();
  std::memcpy(anywhere_.data(), map_.data_ptr(), anywhere_.size());
}

void UsedParameters::reset() {
  map_ = at::Tensor();
  std::fill(here_.begin(), here_.end(), 0);
}

}  // namespace lockstep::detail
