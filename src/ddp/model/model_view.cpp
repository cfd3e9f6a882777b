#include "lockstep/ddp/model_view.h"

#include <torch/csrc/jit/api/module.h>
#include <torch/nn/module.h>

namespace lockstep {
namespace {

NamedTensors defined(NamedTensors tensors) {
  std::erase_if(tensors, [](const auto& item) { return !item.second.defined(); });
  return tensors;
}

std::vector<at::Tensor> without_names(NamedTensors named) {
  std::vector<at::Tensor> tensors;
  tensors.reserve(named.size());
  for (auto& item : named) tensors.push_back(std::move(item.second));
  return tensors;
}

}  // namespace

ModelView::ModelView(const torch::nn::Module& module)
    : parameters_([&module] { return defined(named_tensors(module.named_parameters())); }),
      buffers_([&module] { return defined(named_tensors(module.named_buffers())); }) {}

ModelView::ModelView(const torch::jit::Module& module)
    : parameters_([module] { return defined(named_tensors(module.named_parameters())); }),
      buffers_([module] { return defined(named_tensors(module.named_buffers())); }) {}

ModelView::ModelView(NamedTensors parameters, NamedTensors buffers)
    : parameters_([tensors = defined(std::move(parameters))] { return tensors; }),
      buffers_([tensors = defined(std::move(buffers))] { return tensors; }) {}

std::vector<at::Tensor> ModelView::parameters() const { return without_names(parameters_()); }
std::vector<at::Tensor> ModelView::buffers() const { return without_names(buffers_()); }

}  // namespace lockstep
