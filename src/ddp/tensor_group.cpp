#include "lockstep/ddp/tensor_group.h"

#include <numeric>

namespace lockstep {

std::shared_ptr<TensorGroup> TensorGroup::companion(const std::string& purpose) {
  std::lock_guard lock(companions_mutex_);
  std::shared_ptr<TensorGroup>& group = companions_[purpose];
  if (!group) {
    std::vector<int> ranks(static_cast<std::size_t>(size()));
    std::iota(ranks.begin(), ranks.end(), 0);
    group = new_group(ranks, purpose);
  }
  return group;
}

}  // namespace lockstep
