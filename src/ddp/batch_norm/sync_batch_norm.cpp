#include "lockstep/ddp/sync_batch_norm.h"

#include <fmt/format.h>
#include <torch/nn/functional/batchnorm.h>

#include "ddp/batch_norm/sync_batch_norm_function.h"
#include "lockstep/ddp/init.h"

namespace lockstep {

void SyncBatchNormImpl::_check_input_dim(const at::Tensor& input) {
  if (input.dim() >= 2) return;
  throw Error(
      {StatusCode::invalid_argument,
       fmt::format("SyncBatchNorm: the input has {} dimensions, but (N, C) or (N, C, ...) is needed", input.dim())});
}

at::Tensor SyncBatchNormImpl::forward(const at::Tensor& input) {
  _check_input_dim(input);
  const bool track = is_training() && options.track_running_stats();
  if (track) num_batches_tracked.add_(1);
  double momentum = options.momentum().value_or(0.0);
  if (track && !options.momentum()) momentum = 1.0 / num_batches_tracked.item<double>();

  // As in PyTorch: a layer without running statistics uses those of its own batch in evaluation, where other ranks may
  // have no batch.
  const bool by_batch = is_training() || !options.track_running_stats();
  const bool synchronise = is_training();
  if (synchronise && !own_group_) {
    // A group of one rank does not communicate.
    const std::shared_ptr<ProcessGroup> group = group_or_default(group_);
    own_group_ = group->size() > 1 ? group->companion(detail::kBatchNormGroup) : group;
  }
  if (synchronise && own_group_->size() > 1) {
    return detail::sync_batch_norm({.input = input,
                                    .weight = weight,
                                    .bias = bias,
                                    .running_mean = track ? running_mean : at::Tensor(),
                                    .running_var = track ? running_var : at::Tensor(),
                                    .momentum = momentum,
                                    .eps = options.eps()},
                                   own_group_);
  }
  return torch::nn::functional::detail::batch_norm(input, running_mean, running_var, weight, bias, by_batch, momentum,
                                                   options.eps());
}

void SyncBatchNormImpl::pretty_print(std::ostream& stream) const {
  stream << "lockstep::SyncBatchNorm(" << options.num_features() << ", eps=" << options.eps()
         << ", affine=" << (options.affine() ? "true" : "false")
         << ", track_running_stats=" << (options.track_running_stats() ? "true" : "false") << ")";
}

}  // namespace lockstep
