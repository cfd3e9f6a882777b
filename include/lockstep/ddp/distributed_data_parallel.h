// DistributedDataParallel: a module whose gradients are averaged over all ranks during backward().
//
//   torch::nn::Linear model(10, 10);
//   lockstep::DistributedDataParallel ddp(model);
//   torch::optim::SGD optimizer(ddp->parameters(), 0.01);
//   auto loss = torch::mse_loss(ddp(input), target);
//   loss.backward();
//
// Every replica starts as rank 0's and stays bit-identical to it. `M` is anything with operator->
// to a torch::nn::Module that has forward(): a ModuleHolder, a Sequential, a shared_ptr.
#pragma once

#include <torch/nn/module.h>

#include <functional>
#include <memory>
#include <utility>

#include "lockstep/ddp/gradient_synchronizer.h"
#include "lockstep/ddp/output_tensors.h"

namespace lockstep {

template <typename M>
class DistributedDataParallel {
 public:
  // Collective. Throws Error if the ranks' models differ.
  explicit DistributedDataParallel(M module, const DdpOptions& options = {})
      : module_(std::move(module)),
        synchronizer_(std::make_unique<GradientSynchronizer>(named_tensors(module_->named_parameters()),
                                                             named_tensors(module_->named_buffers()), options)) {}

  // The module's forward(), and what has to happen before and after it. Any arguments, any result in
  // which output_tensors.h finds the tensors.
  template <typename... Inputs>
  auto forward(Inputs&&... inputs) {
    synchronizer_->before_forward(sample_count(inputs...));
    auto output = module_->forward(std::forward<Inputs>(inputs)...);
    std::vector<at::Tensor> tensors;
    for_each_tensor(output, [&](const at::Tensor& tensor) { tensors.push_back(tensor); });
    synchronizer_->after_forward(tensors);
    return output;
  }
  template <typename... Inputs>
  auto operator()(Inputs&&... inputs) {
    return forward(std::forward<Inputs>(inputs)...);
  }

  // The wrapped module.
  auto* operator->() { return &*module_; }
  M& module() { return module_; }

  // GradientSynchronizer's, which says what each does.
  [[nodiscard]] GradientSynchronizer::NoSync no_sync() { return synchronizer_->no_sync(); }
  void join(const std::function<void()>& train_loop, const JoinOptions& options = {}) {
    synchronizer_->join(train_loop, options);
  }
  void set_sample_count(std::int64_t samples) { synchronizer_->set_sample_count(samples); }
  void verify_in_sync() { synchronizer_->verify_in_sync(); }
  void register_comm_hook(std::shared_ptr<CommHook> hook) { synchronizer_->register_comm_hook(std::move(hook)); }
  const DdpLoggingData& logging_data() const { return synchronizer_->logging_data(); }
  const std::shared_ptr<TensorGroup>& process_group() const { return synchronizer_->process_group(); }
  GradientSynchronizer& synchronizer() { return *synchronizer_; }

 private:
  M module_;
  std::unique_ptr<GradientSynchronizer> synchronizer_;
};

}  // namespace lockstep
