// Batch norm in training over all ranks of a group, as a function that autograd can differentiate.
#pragma once

#include "lockstep/ddp/process_group.h"

namespace lockstep::detail {

// The purpose of the companion group on which a process group's layers communicate.
inline constexpr const char* kBatchNormGroup = "sync_batch_norm";

struct BatchNormCall {
  // `input`: (N, C, ...). The others have C elements, or are undefined if the layer does not have them.
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
