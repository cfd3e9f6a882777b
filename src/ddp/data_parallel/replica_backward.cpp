#include "ddp/data_parallel/replica_backward.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/variable.h>

#include "lockstep/base/status.h"

namespace lockstep::detail {

namespace {

// In the order of replicas. The first sum is a new tensor, because a gradient may share its memory.
at::Tensor sum(const std::vector<at::Tensor>& parts) {
  at::Tensor total;
  bool own = false;
  for (const at::Tensor& part : parts) {
    if (!part.defined()) continue;
    if (!total.defined()) {
      total = part;
    } else if (own) {
      total.add_(part);
    } else {
      total = total + part;
      own = true;
    }
  }
  return total;
}

}  // namespace

ReplicaBackward::ReplicaBackward(std::shared_ptr<ReplicaThreads> threads, std::vector<ReplicaGraph> replicas,
                                 const std::vector<GradientSource>& sources)
    : threads_(std::move(threads)), replicas_(std::move(replicas)) {
  for (const GradientSource& source : sources) {
    add_next_edge(torch::autograd::impl::gradient_edge(source.tensor));
    split_.push_back(source.split ? 1 : 0);
  }
}

void ReplicaBackward::attach(const compat::NodePointerTo<ReplicaBackward>& node, at::Tensor& joined,
                             std::size_t output) {
  torch::autograd::set_history(joined, node);
  node->output_of_.push_back(output);
}

torch::autograd::variable_list ReplicaBackward::apply(torch::autograd::variable_list&& gradients) {
  if (at::GradMode::is_enabled()) {
    throw Error({StatusCode::invalid_argument,
                 "DataParallel: backward(create_graph = true) does not work through it; use the module itself"});
  }
  if (replicas_.empty()) {
    throw Error({StatusCode::invalid_argument,
                 "DataParallel: backward a second time through the same forward; the first needs retain_graph = true"});
  }
  std::vector<std::size_t> needed;
  for (std::size_t i = 0; i < num_outputs(); ++i) {
    if (task_should_compute_output(i)) needed.push_back(i);
  }
  std::vector<Tensors> results(replicas_.size());
  threads_->run(replicas_.size(), "backward",
                [&](std::size_t replica) { results[replica] = backward_of(replica, gradients, needed); });
  torch::autograd::variable_list total(num_outputs());
  for (std::size_t n = 0; n < needed.size(); ++n) {
    Tensors parts;
    for (Tensors& result : results) parts.push_back(std::move(result[n]));
    total[needed[n]] = split_[needed[n]] ? concatenated(parts, needed[n]) : sum(parts);
  }
  return total;
}

ReplicaBackward::Tensors ReplicaBackward::backward_of(std::size_t replica, const Tensors& gradients,
                                                      const std::vector<std::size_t>& needed) const {
  const ReplicaGraph& graph = replicas_[replica];
  Tensors outputs;
  Tensors output_gradients;
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    const at::Tensor& output = graph.outputs[output_of_[i]];
    if (!gradients[i].defined() || !output.requires_grad()) continue;
    outputs.push_back(output);
    output_gradients.push_back(part_of(gradients[i], output_of_[i], replica));
  }
  if (outputs.empty() || needed.empty()) return Tensors(needed.size());
  Tensors leaves;
  for (std::size_t source : needed) leaves.push_back(graph.leaves[source]);
  return torch::autograd::grad(outputs, leaves, output_gradients, /*retain_graph=*/!last_, /*create_graph=*/false,
                               /*allow_unused=*/true);
}

at::Tensor ReplicaBackward::part_of(const at::Tensor& gradient, std::size_t output, std::size_t replica) const {
  if (replicas_[replica].outputs[output].dim() == 0) return gradient[static_cast<std::int64_t>(replica)];
  std::int64_t begin = 0;
  for (std::size_t r = 0; r < replica; ++r) begin += replicas_[r].outputs[output].size(0);
  return gradient.narrow(0, begin, replicas_[replica].outputs[output].size(0));
}

at::Tensor ReplicaBackward::concatenated(const Tensors& parts, std::size_t source) const {
  Tensors all;
  bool any = false;
  for (std::size_t r = 0; r < parts.size(); ++r) {
    any = any || parts[r].defined();
    all.push_back(parts[r].defined() ? parts[r] : at::zeros_like(replicas_[r].leaves[source]));
  }
  return any ? at::cat(all) : at::Tensor();
}

}  // namespace lockstep::detail
