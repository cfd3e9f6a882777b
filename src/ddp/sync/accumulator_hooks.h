// Hooks on the nodes of autograd that accumulate gradients: one for each parameter.
//
// Each calls back after a gradient was accumulated into its parameter's .grad. Removes the hooks when destroyed. One
// thread calls everything here, outside of backward; autograd's threads call the callback.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "ddp/torch_compat.h"
#include "lockstep/ddp/gradient_synchronizer.h"

namespace lockstep::detail {

class AccumulatorHooks {
 public:
  // The parameter's index, and the gradient that autograd delivered; undefined if the graph had none.
  using Callback = std::function<void(std::size_t index, const at::Tensor& incoming)>;

  // `parameters` must outlive this object.
  AccumulatorHooks(const NamedTensors& parameters, Callback callback);
  ~AccumulatorHooks();
  AccumulatorHooks(const AccumulatorHooks&) = delete;
  AccumulatorHooks& operator=(const AccumulatorHooks&) = delete;

  // LibTorch gives a parameter a new accumulator when it gets new memory (torch::load): moves the hooks there. Throws
  // if a parameter has another hook: it is in another reducer too.
  void follow();
  // The accumulators, one for each parameter.
  std::vector<torch::autograd::Node*> nodes() const;

 private:
  struct Hook {
    compat::NodePointer accumulator;
    std::uintptr_t key = 0;
  };

  Hook attach(std::size_t index) const;
  void check_only_hook(std::size_t index) const;

  const NamedTensors& parameters_;
  const Callback callback_;
  std::vector<Hook> hooks_;
};

}  // namespace lockstep::detail
