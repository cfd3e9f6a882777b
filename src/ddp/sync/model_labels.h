// Labels for layers that communicate in forward, such as SyncBatchNorm: ranks that run different layers get a mismatch
// error instead of each other's statistics.
//
// A layer is recognised by the place of its parameters and buffers in the model, which is the same on all ranks.
#pragma once

#include <ATen/ATen.h>

#include <initializer_list>
#include <memory>
#include <unordered_map>

#include "lockstep/ddp/model_view.h"

namespace lockstep::detail {

// Immutable.
class ModelLabels {
 public:
  // `model`: its label, the same on all ranks.
  ModelLabels(int model, const NamedTensors& parameters, const NamedTensors& buffers);
  // 0 if the tensor is not one of the model's.
  int of(const at::Tensor& tensor) const;

 private:
  std::unordered_map<const void*, int> labels_;
};

// The model whose forward runs on this thread; null: none. Kept by the caller for as long as it counts.
void set_running_model(const std::shared_ptr<const ModelLabels>& model);
std::shared_ptr<const ModelLabels> running_model();

// The label of the layer with these tensors, of which some may be undefined; 0 if it is in no model that runs.
int label_of_layer(std::initializer_list<at::Tensor> tensors);

}  // namespace lockstep::detail
