// DistributedDataParallel: a module whose gradients are averaged over all ranks during backward().
//
//   torch::nn::Linear model(10, 10);
//   lockstep::DistributedDataParallel ddp(model);
//   torch::optim::SGD optimizer(ddp->parameters(), 0.01);
//   auto loss = torch::mse_loss(ddp(input), target);
//   loss.backward();
//
// Every replica starts as a copy of rank 0's and stays bit-identical to it. `M` is any type whose
// operator-> leads to a torch::nn::Module with forward(): a ModuleHolder, a Sequential, a shared_ptr. Or it is a
// torch::jit::Module, a model that was defined in Python; forward() then returns an IValue:
//
//   torch::jit::Module model = torch::jit::load("model.pt");
//   lockstep::DistributedDataParallel ddp(model);
//   auto loss = torch::mse_loss(ddp(input).toTensor(), target);
//
// Train through ddp(input) or ddp->forward(input). The module's own forward (ddp.module()->forward()) is for
// evaluation: gradients from it cannot be averaged, and the first one that arrives throws. Wrap the model when it is
// complete: if a parameter is later converted, moved, replaced, added, frozen or unfrozen, the next forward throws an
// error that names it.
#pragma once

#include <torch/nn/module.h>

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "lockstep/ddp/gradient_synchronizer.h"
#include "lockstep/ddp/output_tensors.h"
#include "lockstep/ddp/wrapped_module.h"

namespace lockstep {

template <typename M>
class DistributedDataParallel {
 public:
  // Collective. Throws Error if the ranks' models differ.
  explicit DistributedDataParallel(M module, const DdpOptions& options = {})
      : module_(std::move(module)),
        synchronizer_(std::make_unique<GradientSynchronizer>(ModelView(*detail::module_in(module_)), options)) {}

  // Runs the module's forward() and synchronises around it. Takes any arguments; the result may be any type in which
  // output_tensors.h finds the tensors.
  template <typename... Inputs>
  auto forward(Inputs&&... inputs) {
    synchronizer_->check_unchanged(*detail::module_in(module_));
    synchronizer_->before_forward(sample_count(inputs...));
    auto output = detail::call_forward(module_, std::forward<Inputs>(inputs)...);
    std::vector<at::Tensor> tensors;
    for_each_tensor(output, [&](const at::Tensor& tensor) { tensors.push_back(tensor); });
    synchronizer_->after_forward(tensors);
    return output;
  }
  template <typename... Inputs>
  auto operator()(Inputs&&... inputs) {
    return forward(std::forward<Inputs>(inputs)...);
  }

  // ddp->forward(input) is DDP's forward: -> leads to DDP, which has the functions that every module has. Access
  // members of the model's own class through module(): ddp.module()->encoder.
  DistributedDataParallel* operator->() { return this; }
  const DistributedDataParallel* operator->() const { return this; }
  // The wrapped module.
  M& module() { return module_; }
  const M& module() const { return module_; }

  // Those of the module, with the module's names.
  std::vector<at::Tensor> parameters(bool recurse = true) const {
    return detail::as_vector(inner()->parameters(recurse));
  }
  auto named_parameters(bool recurse = true) const { return inner()->named_parameters(recurse); }
  std::vector<at::Tensor> buffers(bool recurse = true) const { return detail::as_vector(inner()->buffers(recurse)); }
  auto named_buffers(bool recurse = true) const { return inner()->named_buffers(recurse); }
  template <typename... Arguments>
  auto modules(Arguments... arguments) const {  // torch::nn: include_self
    return inner()->modules(arguments...);
  }
  auto children() const { return inner()->children(); }
  void train(bool on = true) { inner()->train(on); }
  void eval() { inner()->eval(); }
  bool is_training() const { return inner()->is_training(); }
  template <typename... Arguments>
  void zero_grad(Arguments... arguments) {  // LibTorch 2 has set_to_none
    if constexpr (detail::kIsTorchScript<M>) {
      for (const at::Tensor& parameter : parameters()) parameter.mutable_grad().reset();
    } else {
      inner()->zero_grad(arguments...);
    }
  }

  // Documented in gradient_synchronizer.h.
  [[nodiscard]] GradientSynchronizer::NoSync no_sync() { return synchronizer_->no_sync(); }
  void join(const std::function<void()>& train_loop, const JoinOptions& options = {}) {
    synchronizer_->join(train_loop, options);
  }
  void set_sample_count(std::int64_t samples) { synchronizer_->set_sample_count(samples); }
  void sync_buffers() { synchronizer_->sync_buffers(); }
  void verify_in_sync() { synchronizer_->verify_in_sync(); }
  void register_comm_hook(std::shared_ptr<CommHook> hook) { synchronizer_->register_comm_hook(std::move(hook)); }
  StragglerReport stragglers() { return synchronizer_->stragglers(); }
  const DdpLoggingData& logging_data() const { return synchronizer_->logging_data(); }
  const std::shared_ptr<ProcessGroup>& process_group() const { return synchronizer_->process_group(); }
  GradientSynchronizer& synchronizer() { return *synchronizer_; }

 private:
  auto* inner() { return detail::module_in(module_); }
  auto* inner() const { return detail::module_in(module_); }

  M module_;
  std::unique_ptr<GradientSynchronizer> synchronizer_;
};

}  // namespace lockstep
