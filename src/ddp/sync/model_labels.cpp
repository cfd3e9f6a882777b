#include "ddp/sync/model_labels.h"

#include "ddp/group/operation_label.h"

namespace lockstep::detail {

namespace {
thread_local std::weak_ptr<const ModelLabels> model_of_thread;
}  // namespace

ModelLabels::ModelLabels(int model, const NamedTensors& parameters, const NamedTensors& buffers) {
  int place = 0;
  for (const NamedTensors* tensors : {&parameters, &buffers}) {
    for (const auto& item : *tensors) labels_.emplace(item.second.unsafeGetTensorImpl(), label_of(model, ++place));
  }
}

int ModelLabels::of(const at::Tensor& tensor) const {
  const auto found = labels_.find(tensor.unsafeGetTensorImpl());
  return found == labels_.end() ? 0 : found->second;
}

void set_running_model(const std::shared_ptr<const ModelLabels>& model) { model_of_thread = model; }
std::shared_ptr<const ModelLabels> running_model() { return model_of_thread.lock(); }

int label_of_layer(std::initializer_list<at::Tensor> tensors) {
  const std::shared_ptr<const ModelLabels> model = running_model();
  if (!model) return 0;
  for (const at::Tensor& tensor : tensors) {
    if (!tensor.defined()) continue;
    if (const int label = model->of(tensor); label != 0) return label;
  }
  return 0;
}

}  // namespace lockstep::detail
