// Which parameters will get no gradient from these outputs: a walk over autograd's graph.
#pragma once

#include <ATen/ATen.h>

#include <vector>

namespace torch::autograd {
struct Node;
}

namespace lockstep::detail {

// Indices of the accumulators that no output depends on, ascending.
std::vector<std::size_t> find_unused(const std::vector<at::Tensor>& outputs,
                                     const std::vector<torch::autograd::Node*>& accumulators);

}  // namespace lockstep::detail
