// Batch norm with statistics over the batches of all ranks together.
//
// Either build a model with SyncBatchNorm layers, or convert an existing model:
//
//   auto model = std::make_shared<ResNet>();          // its own torch::nn::BatchNorm2d members
//   lockstep::convert_sync_batchnorm(*model);
//   lockstep::DistributedDataParallel ddp(model);
//
// In training (is_training()) every forward and every backward through such a layer is a collective: all ranks must run
// the same layers in the same order; their numbers of samples may differ and may be 0. The collectives
// run on a companion group, which all layers of one process group share, so they are not interleaved with
// DDP's. A rank that has left its loop in DDP's join() does not take part: give it empty batches instead. In
// evaluation (also of layers without running statistics) and in a group of one rank, it is torch's batch norm
// and does not communicate. Double backward throws Error.
//
// Mean and variance are combined in rank order in f64: every rank gets the same bits.
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/modules/batchnorm.h>

#include <memory>
#include <utility>

#include "lockstep/ddp/process_group.h"

namespace lockstep {

// Takes (N, C) and (N, C, ...) of f32 or f64, as PyTorch's does: for 1d, 2d and 3d. Parameters, buffers, options
// and archives are those of torch::nn::BatchNorm.
class SyncBatchNormImpl : public torch::nn::NormImplBase<2, SyncBatchNormImpl, torch::nn::BatchNormOptions> {
 public:
  // `group`: null means the default group, looked up in the first forward in training.
  explicit SyncBatchNormImpl(std::int64_t num_features, std::shared_ptr<ProcessGroup> group = nullptr)
      : SyncBatchNormImpl(torch::nn::BatchNormOptions(num_features), std::move(group)) {}
  explicit SyncBatchNormImpl(const torch::nn::BatchNormOptions& options, std::shared_ptr<ProcessGroup> group = nullptr)
      : NormImplBase(options), group_(std::move(group)) {}

  at::Tensor forward(const at::Tensor& input);
  void pretty_print(std::ostream& stream) const override;

 protected:
  void _check_input_dim(const at::Tensor& input) override;

 private:
  std::shared_ptr<ProcessGroup> group_;
  std::shared_ptr<ProcessGroup> own_group_;  // the companion group; created when first needed
};
TORCH_MODULE(SyncBatchNorm);

// Makes every torch::nn::BatchNorm1d, 2d and 3d in `module` (itself, in Sequential and other containers,
// nested, in members of the user's classes) compute its statistics over all ranks of `group`. The modules
// remain the same objects of the same types, so the user's code and saved archives need no change. Returns
// the number of converted layers. Collective. A clone() of the module is not converted.
//
// Throws Error, and converts none, if a layer is on another device than the CPU, or has neither parameters nor
// running statistics by which it could be recognised: use SyncBatchNorm there. A converted layer follows
// Module::to() to another type; on another device it throws Error in training. A layer whose tensors were all
// replaced is no longer converted. torch's own check still applies: a converted layer needs more than one value
// per channel on every rank (or none).
int convert_sync_batchnorm(torch::nn::Module& module, const std::shared_ptr<ProcessGroup>& group = nullptr);
template <typename Holder>
requires requires(Holder& holder) { static_cast<torch::nn::Module&>(*holder); }
int convert_sync_batchnorm(Holder&& holder, const std::shared_ptr<ProcessGroup>& group = nullptr) {
  return convert_sync_batchnorm(static_cast<torch::nn::Module&>(*holder), group);
}

}  // namespace lockstep
