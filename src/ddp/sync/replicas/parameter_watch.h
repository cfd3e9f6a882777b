// Detects that a model's parameters are no longer those that DDP was created with.
//
// A parameter that changes its type, shape or device (module->to(), set_data()), or that is replaced, added, frozen or
// unfrozen, would be trained without averaging, so it is an error at the next forward. New values of the same kind
// (torch::load into a wrapped model) are accepted.
#pragma once

#include <vector>

#include "lockstep/ddp/gradient_synchronizer.h"

namespace lockstep::detail {

class ParameterWatch {
 public:
  // `parameters`: all that DDP keeps equal, frozen ones included.
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
    bool frozen;
  };
  const NamedTensors parameters_;
  const NamedTensors buffers_;
  std::vector<Expected> expected_;
};

}  // namespace lockstep::detail
