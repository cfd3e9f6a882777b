// Modules are not replaced, as in PyTorch, because in C++ a model calls its layers through typed members
// (`torch::nn::BatchNorm2d bn_`), which cannot be changed from outside. But every torch batch norm ends in
// the operator aten::batch_norm. So converting a layer means recording its tensors; from the first
// conversion on, the operator checks whether it was called with such tensors. For all others it behaves as
// before. Module::to() changes the content of these tensors, not the objects.
#include <ATen/ops/batch_norm_native.h>
#include <fmt/format.h>
#include <torch/library.h>
#include <torch/nn/modules/batchnorm.h>

#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "ddp/batch_norm/sync_batch_norm_function.h"
#include "lockstep/ddp/init.h"
#include "lockstep/ddp/sync_batch_norm.h"

namespace lockstep {

namespace {

using Tensors = std::vector<at::Tensor>;  // a layer's; those that it does not have are undefined

struct ConvertedLayer {
  std::weak_ptr<ProcessGroup> group;
  std::weak_ptr<torch::nn::Module> module;  // expired: no pointer holds it

  // In evaluation too, the operator computes the statistics of the batch for a layer that has no others.
  bool in_training() const {
    const std::shared_ptr<torch::nn::Module> held = module.lock();
    return !held || held->is_training();
  }
  std::shared_ptr<ProcessGroup> group_or_throw() const {
    if (auto held = group.lock()) return held;
    throw Error(
        {StatusCode::closed,
         "batch norm: this layer was converted to compute its statistics over the ranks of a process group that "
         "has been destroyed; convert it again, or call eval()"});
  }
};

// Converted layers, by any of their tensors: a program may replace some of them. Thread-safe.
class ConvertedLayers {
 public:
  void add(const Tensors& tensors, const ConvertedLayer& layer) {
    std::lock_guard lock(mutex_);
    std::erase_if(layers_, [](const auto& item) { return item.second.alive.expired(); });
    for (const at::Tensor& tensor : tensors) {
      if (!tensor.defined()) continue;
      layers_.insert_or_assign(tensor.unsafeGetTensorImpl(), Entry{Alive(tensor.getIntrusivePtr()), layer});
    }
  }

  std::optional<ConvertedLayer> find(const Tensors& tensors) const {
    std::lock_guard lock(mutex_);
    for (const at::Tensor& tensor : tensors) {
      if (!tensor.defined()) continue;
      const auto found = layers_.find(tensor.unsafeGetTensorImpl());
      if (found != layers_.end()) return found->second.layer;
    }
    return std::nullopt;
  }

 private:
  using Alive = c10::weak_intrusive_ptr<at::TensorImpl, at::UndefinedTensorImpl>;
  struct Entry {
    Alive alive;  // while it exists, no other tensor can be allocated at the same address
    ConvertedLayer layer;
  };
  mutable std::mutex mutex_;
  std::unordered_map<const at::TensorImpl*, Entry> layers_;  // guarded by mutex_
};

ConvertedLayers& converted_layers() {
  static ConvertedLayers* layers = new ConvertedLayers;  // used by an operator that is never unregistered
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
    const auto layer = converted_layers().find({call.weight, call.bias, call.running_mean, call.running_var});
    if (layer && layer->in_training()) {
      if (!input.is_cpu()) {
        throw Error({StatusCode::invalid_argument,
                     fmt::format("batch norm: convert_sync_batchnorm() has made this layer compute its statistics over "
                                 "all ranks, which it does on the CPU only, but its input is on {}; keep the layer on "
                                 "the CPU, or make it a lockstep::SyncBatchNorm",
                                 input.device().str())});
      }
      return detail::sync_batch_norm(call, layer->group_or_throw());
    }
  }
  return at::native::batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps, cudnn_enabled);
}

void take_over_operator() {
  // Never destroyed. Marked as used, so that the pointer is kept and leak checkers can follow it.
  [[gnu::used]] static const std::vector<torch::Library>* const libraries = [] {
    auto* made = new std::vector<torch::Library>;
    // Calls usually arrive through autograd's keys, and through the others under c10::InferenceMode. The keys of
    // devices are there to detect layers that were moved.
    using Key = c10::DispatchKey;
    for (Key key : {Key::AutogradCPU, Key::CPU, Key::AutogradCUDA, Key::CUDA, Key::AutogradXPU, Key::XPU,
                    Key::AutogradMPS, Key::MPS, Key::AutogradPrivateUse1, Key::PrivateUse1}) {
      made->emplace_back(torch::Library::IMPL, "aten", key, __FILE__, __LINE__);
      made->back().impl("batch_norm", TORCH_FN(batch_norm));
    }
    return made;
  }();
}

struct FoundLayer {
  std::string name;
  Tensors tensors;
  bool tracks;  // has running statistics
  std::weak_ptr<torch::nn::Module> module;
};

template <typename Layer>
bool find(const std::string& name, torch::nn::Module& module, std::vector<FoundLayer>& found) {
  auto* layer = dynamic_cast<Layer*>(&module);
  if (!layer) return false;
  found.push_back({name,
                   {layer->weight, layer->bias, layer->running_mean, layer->running_var},
                   layer->options.track_running_stats(),
                   module.weak_from_this()});
  return true;
}

std::vector<FoundLayer> find_batch_norms(torch::nn::Module& module) {
  std::vector<FoundLayer> found;
  const torch::nn::Module::NamedModuleApplyFunction visit = [&](const std::string& name, torch::nn::Module& layer) {
    find<torch::nn::BatchNorm1dImpl>(name, layer, found) || find<torch::nn::BatchNorm2dImpl>(name, layer, found) ||
        find<torch::nn::BatchNorm3dImpl>(name, layer, found);
  };
  module.apply(visit);
  return found;
}

void check(const FoundLayer& layer) {
  const auto refuse = [&](const std::string& why) {
    throw Error({StatusCode::invalid_argument,
                 fmt::format("convert_sync_batchnorm: the layer \"{}\" {}; make it a lockstep::SyncBatchNorm",
                             layer.name, why)});
  };
  bool has_tensors = false;
  for (const at::Tensor& tensor : layer.tensors) {
    if (!tensor.defined()) continue;
    has_tensors = true;
    if (!tensor.is_cpu()) {
      refuse(fmt::format("is on {}, and only layers on the CPU are converted", tensor.device().str()));
    }
  }
  if (!has_tensors) {
    refuse("has neither parameters (affine) nor running statistics, so it cannot be recognised in forward");
  }
  if (!layer.tracks && layer.module.expired()) {
    refuse(
        "has no running statistics and is not held by a std::shared_ptr, so forward cannot find out whether it is "
        "in training");
  }
}

}  // namespace

int convert_sync_batchnorm(torch::nn::Module& module, const std::shared_ptr<ProcessGroup>& group) {
  const std::shared_ptr<ProcessGroup> parent = group_or_default(group);
  const std::vector<FoundLayer> layers = find_batch_norms(module);
  for (const FoundLayer& layer : layers) check(layer);  // all of them or none
  // A group of one rank does not communicate: torch's own batch norm stays.
  if (parent->size() > 1) {
    const std::shared_ptr<ProcessGroup> own = parent->companion(detail::kBatchNormGroup);
    take_over_operator();
    for (const FoundLayer& layer : layers) converted_layers().add(layer.tensors, {own, layer.module});
  }
  return static_cast<int>(layers.size());
}

}  // namespace lockstep
