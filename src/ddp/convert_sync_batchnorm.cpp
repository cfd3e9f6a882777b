// Why not replace modules, as PyTorch does: in C++ a model calls its layers through typed members
// (`torch::nn::BatchNorm2d bn_`), which nobody from outside can make point to something else. But every
// torch batch norm ends in the operator aten::batch_norm. So converting a layer means to remember its
// tensors, and the operator, from the first conversion on, looks whether it was called with such. For
// all others it is what it was.
#include <ATen/ops/batch_norm_native.h>
#include <fmt/format.h>
#include <torch/library.h>
#include <torch/nn/modules/batchnorm.h>

#include <mutex>
#include <unordered_map>

#include "ddp/sync_batch_norm_function.h"
#include "lockstep/ddp/init.h"
#include "lockstep/ddp/sync_batch_norm.h"

namespace lockstep {

namespace {

// Converted layers, by their weight, or running mean if they have no weight. Thread-safe.
class ConvertedLayers {
 public:
  void add(const at::Tensor& identity, const std::shared_ptr<TensorGroup>& group) {
    std::lock_guard lock(mutex_);
    std::erase_if(layers_, [](const auto& item) { return item.second.alive.expired(); });
    layers_.insert_or_assign(identity.unsafeGetTensorImpl(), Layer{Alive(identity.getIntrusivePtr()), group});
  }

  // Null: not converted.
  std::shared_ptr<TensorGroup> find(const at::Tensor& identity) const {
    std::lock_guard lock(mutex_);
    const auto found = layers_.find(identity.unsafeGetTensorImpl());
    if (found == layers_.end()) return nullptr;
    if (auto group = found->second.group.lock()) return group;
    throw Error(
        {StatusCode::closed,
         "batch norm: this layer was converted to compute its statistics over the ranks of a process group that "
         "has been destroyed; convert it again, or call eval()"});
  }

 private:
  using Alive = c10::weak_intrusive_ptr<at::TensorImpl, at::UndefinedTensorImpl>;
  struct Layer {
    Alive alive;  // while it is here, no other tensor can come to life at the same address
    std::weak_ptr<TensorGroup> group;
  };
  mutable std::mutex mutex_;
  std::unordered_map<const at::TensorImpl*, Layer> layers_;  // guarded by mutex_
};

ConvertedLayers& converted_layers() {
  static ConvertedLayers* layers = new ConvertedLayers;  // used by an operator that is never taken back
  return *layers;
}

using OptionalTensor = torch::optional<at::Tensor>;

at::Tensor tensor_or_undefined(const OptionalTensor& tensor) { return tensor ? *tensor : at::Tensor(); }

at::Tensor batch_norm(const at::Tensor& input, const OptionalTensor& weight, const OptionalTensor& bias,
                      const OptionalTensor& running_mean, const OptionalTensor& running_var, bool training,
                      double momentum, double eps, bool cudnn_enabled) {
  if (training) {
    detail::BatchNormCall call{.input = input,
                               .weight = tensor_or_undefined(weight),
                               .bias = tensor_or_undefined(bias),
                               .running_mean = tensor_or_undefined(running_mean),
                               .running_var = tensor_or_undefined(running_var),
                               .momentum = momentum,
                               .eps = eps};
    const at::Tensor& identity = call.weight.defined() ? call.weight : call.running_mean;
    if (identity.defined()) {
      if (auto group = converted_layers().find(identity)) return detail::sync_batch_norm(call, group);
    }
  }
  return at::native::batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps, cudnn_enabled);
}

void take_over_operator() {
  static const std::vector<torch::Library>* libraries = [] {
    auto* made = new std::vector<torch::Library>;
    // AutogradCPU is the usual way in; CPU the one under c10::InferenceMode.
    for (c10::DispatchKey key : {c10::DispatchKey::AutogradCPU, c10::DispatchKey::CPU}) {
      made->emplace_back(torch::Library::IMPL, "aten", key, __FILE__, __LINE__);
      made->back().impl("batch_norm", TORCH_FN(batch_norm));
    }
    return made;
  }();
  (void)libraries;
}

template <typename Layer>
bool convert(const std::string& name, torch::nn::Module& module, const std::shared_ptr<TensorGroup>& group) {
  auto* layer = dynamic_cast<Layer*>(&module);
  if (!layer) return false;
  const at::Tensor& identity = layer->weight.defined() ? layer->weight : layer->running_mean;
  if (!identity.defined()) {
    throw Error({StatusCode::invalid_argument,
                 fmt::format("convert_sync_batchnorm: the layer \"{}\" has neither parameters (affine) nor running "
                             "statistics, so it cannot be told from others; make it a lockstep::SyncBatchNorm",
                             name)});
  }
  if (group) converted_layers().add(identity, group);
  return true;
}

}  // namespace

int convert_sync_batchnorm(torch::nn::Module& module, const std::shared_ptr<TensorGroup>& group) {
  const std::shared_ptr<TensorGroup> parent = group_or_default(group);
  // A group of one has nobody to talk to: torch's own batch norm stays.
  const std::shared_ptr<TensorGroup> own = parent->size() > 1 ? parent->companion(detail::kBatchNormGroup) : nullptr;
  if (own) take_over_operator();
  int count = 0;
  const torch::nn::Module::NamedModuleApplyFunction visit = [&](const std::string& name, torch::nn::Module& layer) {
    count += convert<torch::nn::BatchNorm1dImpl>(name, layer, own) ||
                     convert<torch::nn::BatchNorm2dImpl>(name, layer, own) ||
                     convert<torch::nn::BatchNorm3dImpl>(name, layer, own)
                 ? 1
                 : 0;
  };
  module.apply(visit);
  return count;
}

}  // namespace lockstep
