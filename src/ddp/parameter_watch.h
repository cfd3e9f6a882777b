// Notices that a model's parameters are no longer those that DDP was made with.
//
// DDP's hooks are on the parameters' gradient accumulators, which LibTorch drops when a parameter changes its type or
// device (module->to(), set_data()). A parameter that is replaced, added, frozen or unfrozen escapes as well. All of
// that would train without averaging, so it is an error at the next forward.
#pragma once

#include <vector>

#include "lockstep/ddp/gradient_synchronizer.h"
#include "lockstep/ddp/torch_compat.h"

namespace lockstep::detail {

class ParameterWatch {
 public:
  // `parameters`: all that DDP looks after, frozen ones included. Keeps the accumulators of the others alive.
  ParameterWatch(NamedTensors parameters, NamedTensors buffers);

  // Throws Error naming the first parameter that changed, and how. Returns whether this model can be trained now: false
  // if every parameter that needed a gradient is frozen (a GAN's discriminator while the generator learns).
  bool check() const;
  // Throws Error if `parameters` and `buffers`, the module's present ones, are not the same tensors in the same order.
  void check_same(const NamedTensors& parameters, const NamedTensors& buffers) const;

 private:
  struct Expected {
    std::vector<std::int64_t> sizes;
    at::ScalarType type;
    at::Device device;
    compat::NodePointer accumulator;  // null: frozen
  };
  const NamedTensors parameters_;
  const NamedTensors buffers_;
  std::vector<Expected> expected_;
};

}  // namespace lockstep::detail
