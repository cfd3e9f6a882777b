// Gradient clipping by the norm of all gradients together.
//
// After DDP's backward every rank has the same gradients, with ZeroRedundancyOptimizer too (it shards the
// optimizer's state, not gradients). So each rank can compute the norm by itself, and
// torch::nn::utils::clip_grad_norm_ does the job, as long as all ranks run with equally many threads:
// the last bit of a norm depends on how the sum was split. This one promises replicas that stay
// bit-identical anyway: all take rank 0's norm, at the price of one message of one number.
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

// Scales the gradients of `parameters` so that their norm is at most `max_norm`, and returns the norm that
// they had; parameters without a gradient do not count. Collective; the arithmetic is torch's, so one
// rank gets exactly what torch::nn::utils::clip_grad_norm_ gives.
double clip_grad_norm_(const std::vector<at::Tensor>& parameters, double max_norm, const ClipGradOptions& options = {});

}  // namespace lockstep
