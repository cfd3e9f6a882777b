// A collective as a linear map from all ranks' inputs to all ranks' outputs. Its backward is the adjoint map, which is
// a collective, too: that of all_gather is reduce_scatter. One autograd function serves all of them.
#pragma once

#include <memory>

#include "lockstep/ddp/process_group.h"

namespace lockstep::detail {

// Immutable. Both calls may be made on any thread.
class LinearCollective {
 public:
  virtual ~LinearCollective() = default;
  // Runs the collective and returns its result in memory of its own. Blocks. Throws Error.
  virtual at::Tensor run(const at::Tensor& input) const = 0;
  // The map that takes the gradients of the outputs to those of the inputs.
  virtual std::shared_ptr<const LinearCollective> adjoint() const = 0;
  // Called once for each call on all ranks: a new number, the same on all of them.
  virtual int number_of_call() const = 0;
};

// Runs the collective so that autograd records it, whether or not this rank's input requires a gradient: all ranks take
// part in backward, or none does.
at::Tensor apply_collective(std::shared_ptr<const LinearCollective> collective, const at::Tensor& input);

}  // namespace lockstep::detail
