// Gradient clipping by the norm of all gradients together.
//
// After DDP's backward every rank has the same gradients, also with ZeroRedundancyOptimizer (it shards the
// optimizer's state, not the gradients). So each rank could compute the norm by itself with
// torch::nn::utils::clip_grad_norm_, as long as all ranks have the same number of threads: the last bit
// of a norm depends on how the sum was split. clip_grad_norm_ below keeps replicas bit-identical in any
// case: all ranks take rank 0's norm, at the cost of broadcasting one number.
#pragma once

#include <ATen/ATen.h>

#include <memory>
#include <vector>

#include "lockstep/ddp/process_group.h"

namespace lockstep {

struct ClipGradOptions {
  // 2: Euclidean; infinity: the largest absolute value; any other p-norm.
  double norm_type = 2;
  // Throw Error, on all ranks, if the norm is infinite or NaN; the gradients are then unchanged.
  bool error_if_nonfinite = false;
  // Null: the default group, or none if there is none.
  std::shared_ptr<ProcessGroup> group = nullptr;
};

// Scales the gradients of `parameters` so that their norm is at most `max_norm`, and returns the norm before
// scaling; parameters without a gradient do not count. Collective. The arithmetic is torch's: a single
// rank gets exactly the result of torch::nn::utils::clip_grad_norm_.
double clip_grad_norm_(const std::vector<at::Tensor>& parameters, double max_norm, const ClipGradOptions& options = {});

}  // namespace lockstep
