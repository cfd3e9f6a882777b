// A state of training that another rank sends: compared with the program's first, then received, then put in place.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/state_header.h"
#include "ddp/snapshot/optimizer_state.h"
#include "ddp/snapshot/tensors.h"
#include "lockstep/checkpoint/snapshot.h"

namespace lockstep::detail {

class IncomingState {
 public:
  // Changes nothing. `where` is for messages: what the state comes from. in_place: the model's present content is worth
  // nothing, so the new one is received into its memory at once. Throws Error (mismatch), which names each tensor of
  // the model that is missing, unexpected, or of another shape or type, and what of the optimizer differs how.
  // Allocates no more than what the program's own model and optimizer take, and what the sender's own values announce.
  IncomingState(checkpoint::State& state, const checkpoint::StateHeader& header, const std::string& where,
                bool in_place);

  // What the sender's bytes are to be written to, in the order in which they come: contiguous, on the CPU.
  std::vector<at::Tensor> buffers() const;
  // Once, after all buffers were filled: the program's state becomes the sender's.
  void install();

 private:
  struct Part {
    at::Tensor target;
    at::Tensor buffer;  // the same memory, if that is possible
  };
  void add(const checkpoint::SafetensorsHead& head, const checkpoint::NamedTensors& targets, bool in_place);

  checkpoint::State& state_;
  const checkpoint::Manifest manifest_;
  std::vector<Part> parts_;
  std::optional<checkpoint::IncomingOptimizer> optimizer_;
  std::map<std::string, checkpoint::Value> values_;
};

}  // namespace lockstep::detail
