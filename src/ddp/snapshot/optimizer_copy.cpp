#include "ddp/snapshot/optimizer_copy.h"

#include <typeinfo>
#include <vector>

#include "ddp/snapshot/optimizer_tensors.h"
#include "ddp/snapshot/state.h"
#include "lockstep/ddp/fused_optimizers.h"

namespace lockstep::checkpoint {
namespace {

using torch::optim::Optimizer;

// Copying to memory that was used before is several times as fast as to new memory, whose pages fault one by one.
// Copies of a device's tensors are on the CPU: the thread that writes them does not use the device's streams.
at::Tensor copy_of(const at::Tensor& tensor, const at::Tensor* reuse) {
  const bool fits = reuse != nullptr && reuse->defined() && reuse->scalar_type() == tensor.scalar_type() &&
                    reuse->sizes() == tensor.sizes() && reuse->strides() == tensor.strides();
  if (fits) return at::Tensor(*reuse).copy_(tensor);
  return tensor.is_cpu() ? tensor.clone() : tensor.cpu();
}

// Null unless `optimizer` is a Plain. `old`: an earlier twin, or null.
template <typename Plain, typename Options, typename ParamState>
std::unique_ptr<Optimizer> twin_as(const Optimizer& optimizer, Optimizer* old) {
  // A fused optimizer has the state of the plain one, unless it has master weights.
  if (typeid(optimizer) != typeid(Plain) && typeid(optimizer) != typeid(optim::Fused<Plain>)) return nullptr;
  for (const auto& entry : optimizer.state()) {
    const auto& state = *entry.second;
    if (typeid(state) != typeid(ParamState)) return nullptr;
  }
  auto twin = std::make_unique<Plain>(std::vector<torch::optim::OptimizerParamGroup>(optimizer.param_groups()),
                                      static_cast<const Options&>(optimizer.defaults()));
  for (const auto& [key, state] : optimizer.state()) {
    auto copy = std::make_unique<ParamState>(static_cast<const ParamState&>(*state));
    StateTensors old_tensors;
    if (old != nullptr && typeid(*old) == typeid(Plain) && old->state().find(key) != old->state().end()) {
      old_tensors = tensors_in(static_cast<ParamState&>(*old->state().at(key)));
    }
    const StateTensors tensors = tensors_in(*copy);
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      if (tensors[i]->defined()) *tensors[i] = copy_of(*tensors[i], old_tensors.empty() ? nullptr : old_tensors[i]);
    }
    twin->state()[key] = std::move(copy);
  }
  return twin;
}

std::unique_ptr<Optimizer> twin_of(const Optimizer& optimizer, Optimizer* old) {
  using namespace torch::optim;
  if (auto twin = twin_as<SGD, SGDOptions, SGDParamState>(optimizer, old)) return twin;
  if (auto twin = twin_as<Adam, AdamOptions, AdamParamState>(optimizer, old)) return twin;
  if (auto twin = twin_as<AdamW, AdamWOptions, AdamWParamState>(optimizer, old)) return twin;
  if (auto twin = twin_as<RMSprop, RMSpropOptions, RMSpropParamState>(optimizer, old)) return twin;
  return twin_as<Adagrad, AdagradOptions, AdagradParamState>(optimizer, old);
}

}  // namespace

OptimizerCopy OptimizerCopy::of(const Optimizer& optimizer, OptimizerCopy reuse) {
  at::NoGradGuard no_grad;
  OptimizerCopy copy;
  copy.twin_ = twin_of(optimizer, reuse.twin_.get());
  if (copy.twin_ == nullptr) copy.bytes_ = optimizer_to_bytes(optimizer);
  return copy;
}

std::string OptimizerCopy::to_bytes() const { return twin_ == nullptr ? bytes_ : optimizer_to_bytes(*twin_); }

}  // namespace lockstep::checkpoint
