// Batch norm in training over all ranks of a group, as a function that autograd can go back through.
#pragma once

#include "lockstep/ddp/process_group.h"

namespace lockstep::detail {

// The companion of a process group on which its layers communicate.
inline constexpr const char* kBatchNormGroup = "sync_batch_norm";

struct BatchNormCall {
  // `input`: (N, C, ...). The others have C elements; undefined ones are not there.
  at::Tensor input;
  at::Tensor weight;
  at::Tensor bias;
  at::Tensor running_mean;  // updated, with `momentum`
  at::Tensor running_var;
  double momentum = 0;
  double eps = 0;
};

// Collective on `group`, in forward and in backward. Throws Error.
at::Tensor sync_batch_norm(const BatchNormCall& call, const std::shared_ptr<ProcessGroup>& group);

}  // namespace lockstep::detail
