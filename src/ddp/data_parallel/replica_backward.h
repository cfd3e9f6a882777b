// The path of gradients through DataParallel: one node in the caller's graph, behind which every replica has
// a graph of its own.
//
// The graphs are separate so that backward can run in several threads: LibTorch's engine runs one CPU graph
// in one thread.
#pragma once

#include <torch/csrc/autograd/function.h>

#include <memory>
#include <vector>

#include "ddp/data_parallel/replica_threads.h"
#include "ddp/torch_compat.h"

namespace lockstep::detail {

// What a replica computed, and from what.
struct ReplicaGraph {
  std::vector<at::Tensor> leaves;   // its parameters, then its parts of the inputs: one for each source
  std::vector<at::Tensor> outputs;  // with the graph that leads to the leaves
};

// What the gradients are for: a parameter or an input of the caller.
struct GradientSource {
  at::Tensor tensor;
  bool split = false;  // every replica has a part, not the whole
};

class ReplicaBackward final : public torch::autograd::Node {
 public:
  ReplicaBackward(std::shared_ptr<ReplicaThreads> threads, std::vector<ReplicaGraph> replicas,
                  const std::vector<GradientSource>& sources);

  // Makes `joined`, the concatenation of the replicas' outputs number `output`, a result of this node.
  static void attach(const compat::NodePointerTo<ReplicaBackward>& node, at::Tensor& joined, std::size_t output);

  std::string name() const override { return "LockstepDataParallelBackward"; }
  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override;
  void will_release_variables() override { last_ = true; }
  void release_variables() override { replicas_.clear(); }

 private:
  using Tensors = std::vector<at::Tensor>;
  Tensors backward_of(std::size_t replica, const Tensors& gradients, const std::vector<std::size_t>& needed) const;
  at::Tensor part_of(const at::Tensor& gradient, std::size_t output, std::size_t replica) const;
  at::Tensor concatenated(const Tensors& parts, std::size_t source) const;

  const std::shared_ptr<ReplicaThreads> threads_;
  std::vector<ReplicaGraph> replicas_;  // empty once released
  std::vector<char> split_;             // per source
  std::vector<std::size_t> output_of_;  // per incoming gradient
  bool last_ = false;                   // the graphs are not needed again
};

}  // namespace lockstep::detail
