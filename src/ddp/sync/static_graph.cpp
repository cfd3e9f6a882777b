#include "ddp/sync/static_graph.h"

namespace lockstep::detail {

void StaticGraph::arrived(std::size_t parameter) {
  if (counts_[parameter]++ == 0) order_.push_back(parameter);
}

void StaticGraph::finish(bool shadowed) {
  known_ = true;
  shadowed_ = shadowed;
}

void StaticGraph::adopt(const std::vector<std::int64_t>& counts) {
  if (shadowed_) counts_ = counts;
}

std::vector<std::size_t> StaticGraph::unused() const {
  std::vector<std::size_t> result;
  for (std::size_t i = 0; known_ && i < counts_.size(); ++i) {
    if (counts_[i] == 0) result.push_back(i);
  }
  return result;
}

}  // namespace lockstep::detail
