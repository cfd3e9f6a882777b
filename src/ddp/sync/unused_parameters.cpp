#include "ddp/sync/unused_parameters.h"

#include <unordered_set>

#include "ddp/torch_compat.h"

namespace lockstep::detail {

std::vector<std::size_t> find_unused(const std::vector<at::Tensor>& outputs,
                                     const std::vector<torch::autograd::Node*>& accumulators) {
  using torch::autograd::Node;
  std::unordered_set<Node*> seen;
  std::vector<Node*> open;
  const auto visit = [&](Node* node) {
    if (node != nullptr && seen.insert(node).second) open.push_back(node);
  };
  for (const at::Tensor& output : outputs) {
    if (output.requires_grad()) visit(torch::autograd::impl::gradient_edge(output).function.get());
  }
  while (!open.empty()) {
    Node* node = open.back();
    open.pop_back();
    for (const torch::autograd::Edge& edge : node->next_edges()) visit(edge.function.get());
  }
  std::vector<std::size_t> unused;
  for (std::size_t i = 0; i < accumulators.size(); ++i) {
    if (!seen.contains(accumulators[i])) unused.push_back(i);
  }
  return unused;
}

}  // namespace lockstep::detail
