// One optimizer step's forwards and backwards: what the program with DDP and the one written by hand have in common.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "ddp/model_fuzz/graph_module.h"

namespace lockstep::fuzz {

struct Pass {
  // Runs the model; `synchronised` is false under no_sync.
  std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>& inputs, bool synchronised)> forward;
  // Begins no_sync, which ends when the result is destroyed.
  std::function<std::shared_ptr<void>()> no_sync;
  std::function<void(int micro)> before_backward;
  std::function<void(int micro, bool synchronised)> after_backward;
};

// What the program can see afterwards that is local to the rank.
struct LocalGradients {
  std::vector<GraphModule::Watched> watched;  // after each backward
  std::vector<at::Tensor> inputs;             // undefined if an input needs none
};

LocalGradients run_pass(const Case& item, Place place, GraphModule& module, const Pass& pass);

// Gradients of one process with all ranks' batches of a step; undefined where there are none.
std::vector<at::Tensor> whole_batch_gradients(const Case& item, int step, GraphModule& module);

}  // namespace lockstep::fuzz
