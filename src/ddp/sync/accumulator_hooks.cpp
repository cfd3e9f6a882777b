#include "ddp/sync/accumulator_hooks.h"

#include <fmt/format.h>

namespace lockstep::detail {

AccumulatorHooks::AccumulatorHooks(const NamedTensors& parameters, Callback callback)
    : parameters_(parameters), callback_(std::move(callback)) {
  for (std::size_t i = 0; i < parameters_.size(); ++i) hooks_.push_back(attach(i));
}

AccumulatorHooks::~AccumulatorHooks() {
  for (const Hook& hook : hooks_) hook.accumulator->del_post_hook(hook.key);
}

AccumulatorHooks::Hook AccumulatorHooks::attach(std::size_t index) const {
  Hook hook{.accumulator = compat::gradient_accumulator(parameters_[index].second)};
  hook.key = hook.accumulator->add_post_hook(
      std::make_unique<compat::PostHook>([this, index](const at::Tensor& incoming) { callback_(index, incoming); }));
  return hook;
}

void AccumulatorHooks::follow() {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (!parameters_[i].second.requires_grad()) continue;
    check_only_hook(i);
    if (compat::existing_accumulator(parameters_[i].second) == hooks_[i].accumulator) continue;
    hooks_[i].accumulator->del_post_hook(hooks_[i].key);
    hooks_[i] = attach(i);
  }
}

std::vector<torch::autograd::Node*> AccumulatorHooks::nodes() const {
  std::vector<torch::autograd::Node*> nodes;
  for (const Hook& hook : hooks_) nodes.push_back(hook.accumulator.get());
  return nodes;
}

// Two reducers would reduce one gradient, and neither could see that the other does.
void AccumulatorHooks::check_only_hook(std::size_t index) const {
  if (compat::count_post_hooks(*hooks_[index].accumulator) <= 1) return;
  throw Error(
      {StatusCode::invalid_argument,
       fmt::format("DistributedDataParallel: parameter \"{}\" is also in another DistributedDataParallel (or "
                   "GradientSynchronizer) that still exists, but its gradient can be averaged only once. Destroy the "
                   "other one first; models that share a module: wrap them together, as one module",
                   parameters_[index].first)});
}

}  // namespace lockstep::detail
