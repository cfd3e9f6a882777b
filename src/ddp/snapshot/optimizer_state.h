// The state of an optimizer as fields of text and named tensors, which a safetensors file can hold, and back.
//
//   kind                 torch::optim::Adam
//   groups               1
//   group.0              Adam          group.0.parameters   6        group.0.lr   0.001   group.0.betas.0   0.9   ...
//   state.4              Adam          state.4.step         120
//   tensors: state.4.exp_avg, state.4.exp_avg_sq, and state.4.master for an f16 or bf16 parameter of a fused optimizer
//
// Parameters are counted through all groups. One that has no state yet has no fields. Numbers are decimal and are read
// back bit for bit. Known are the options and states of SGD, Adam, AdamW, Adagrad, RMSprop, LBFGS and Lion, also in
// classes derived from these optimizers. An optimizer without master weights ignores those that are read. Nothing that
// is read is executed: this replaces LibTorch's archives.
#pragma once

#include <torch/optim/optimizer.h>

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "checkpoint/safetensors.h"
#include "ddp/snapshot/tensors.h"

namespace lockstep::checkpoint {

struct OptimizerContent {
  Metadata fields;
  NamedTensors tensors;  // share the optimizer's memory
};
// Only reads the optimizer. A ZeroRedundancyOptimizer needs consolidate_state_dict() first. Throws Error
// (invalid_argument): the optimizer keeps options or state of a class that is not LibTorch's.
OptimizerContent content_of_optimizer(const torch::optim::Optimizer& optimizer);

// A state for an optimizer, from elsewhere: checked first, then filled, then put in place.
class IncomingOptimizer {
 public:
  // Changes nothing. `where` is for messages: what the state comes from. Throws Error (mismatch), which names the field
  // or the tensor that is missing, unexpected, or does not fit the optimizer's kind, groups or parameters. Allocates
  // the tensors of the new state, each only if its shape is that of the optimizer's own parameters.
  IncomingOptimizer(torch::optim::Optimizer& optimizer, const Metadata& fields, const TensorInfos& tensors,
                    const std::string& where);
  ~IncomingOptimizer();
  IncomingOptimizer(IncomingOptimizer&&) noexcept;

  // To be filled with the content, on the device of the parameters. Exactly those of `tensors`.
  const NamedTensors& tensors() const { return tensors_; }
  // Replaces the state and the options (learning rate, ...) of the optimizer.
  void install();

 private:
  class Reader;
  void read_groups(Reader& reader);

  torch::optim::Optimizer& optimizer_;
  std::unique_ptr<torch::optim::Optimizer> plain_;  // of a sharded optimizer: the whole one, which is then taken apart
  NamedTensors tensors_;
  std::vector<std::unique_ptr<torch::optim::OptimizerOptions>> options_;                           // by group
  std::vector<std::pair<at::Tensor, std::unique_ptr<torch::optim::OptimizerParamState>>> states_;  // with the parameter
};

// "torch::optim::Adam"; for a ZeroRedundancyOptimizer and a fused optimizer, the plain one's, whose state it can load.
std::string optimizer_kind(const torch::optim::Optimizer& optimizer);

// The same as the bytes of one file.
std::string optimizer_to_bytes(const torch::optim::Optimizer& optimizer);
// All or nothing. Throws Error: protocol_error for bytes that are no such file, mismatch as above.
void optimizer_from_bytes(torch::optim::Optimizer& optimizer, std::string_view bytes);

}  // namespace lockstep::checkpoint
