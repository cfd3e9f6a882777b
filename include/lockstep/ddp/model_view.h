// ModelView: the parameters and buffers of a model, by name, whatever kind of module it is.
//
// Functions that train, save or load a model take one. It is made implicitly from a torch::nn::Module, from a
// torch::jit::Module (TorchScript, e.g. torch::jit::load("model.pt")), or explicitly from named tensors:
//
//   lockstep::load_weights(module, "pretrained.pt");
//   lockstep::checkpoint::State state{.model = module, .optimizer = optimizer};
#pragma once

#include <ATen/ATen.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace torch {
namespace nn {
class Module;
}
namespace jit {
struct Module;
}
}  // namespace torch

namespace lockstep {

using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

// The tensors share the model's memory. Undefined ones are left out. A const module is as good as another: its tensors
// may change. Thread-safe as far as the module is.
class ModelView {
 public:
  // Looks into the module in each call, so it sees tensors that were added or replaced. The module must outlive this.
  ModelView(const torch::nn::Module& module);
  // Keeps a handle of the module: TorchScript's modules are handles, and copies of one are the same module.
  ModelView(const torch::jit::Module& module);
  explicit ModelView(NamedTensors parameters, NamedTensors buffers = {});

  NamedTensors named_parameters() const { return parameters_(); }
  NamedTensors named_buffers() const { return buffers_(); }
  // Without the names, in the same order.
  std::vector<at::Tensor> parameters() const;
  std::vector<at::Tensor> buffers() const;

 private:
  std::function<NamedTensors()> parameters_;
  std::function<NamedTensors()> buffers_;
};

// From an OrderedDict (torch::nn) or TorchScript's lists of named values.
template <typename Named>
NamedTensors named_tensors(const Named& named) {
  NamedTensors result;
  for (const auto& item : named) {
    if constexpr (requires { item.key(); }) {
      result.emplace_back(item.key(), item.value());
    } else {
      result.emplace_back(item.name, item.value);
    }
  }
  return result;
}

}  // namespace lockstep
