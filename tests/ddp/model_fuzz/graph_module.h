// A generated model as a torch::nn::Module: an interpreter of case.h's nodes.
#pragma once

#include <torch/nn/module.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "ddp/model_fuzz/case.h"

namespace lockstep::fuzz {

// Where in the training a forward happens. Decides about data and gates.
struct Place {
  int rank = 0;
  int step = 0;
  int micro = 0;
  int forward = 0;
};

class GraphModule : public torch::nn::Module {
 public:
  // `start` is added to the salt of parameters and buffers: replicas with other ones start elsewhere. `track`: a
  // tensor hook on every parameter tells received(); else only where the case has one.
  GraphModule(const Case& item, std::int64_t start, bool track);

  // Sets what the next forward depends on besides its inputs.
  void go_to(const Place& place) { place_ = place; }
  // `first` and `more` as inputs() made them.
  std::vector<at::Tensor> forward(const at::Tensor& first, const std::vector<at::Tensor>& more);

  const std::vector<at::Tensor>& leaves() const { return leaves_; }  // by index of parameter
  // Copies of the gradients that tensor hooks kept and that intermediate values retain, from the last backward: by
  // name, in the order of arrival. Lets go of them.
  using Watched = std::map<std::string, std::vector<at::Tensor>>;
  Watched take_watched();
  // Parameters that received a gradient since forget_received(). Needs `track`.
  void forget_received() { received_.assign(received_.size(), 0); }
  const std::vector<char>& received() const { return received_; }

 private:
  std::vector<at::Tensor> evaluate(const std::vector<at::Tensor>& inputs);
  at::Tensor run(const Node& node, const std::vector<at::Tensor>& values, const std::vector<at::Tensor>& inputs);
  at::Tensor run_layer(const Node& node, const std::vector<at::Tensor>& in);
  at::Tensor segment(int number, int hole, int result, const at::Tensor& x);

  const Case& case_;
  Place place_;
  std::vector<at::Tensor> leaves_;
  std::vector<std::vector<at::Tensor>> statistics_;  // mean, variance, count of each batch norm
  std::vector<std::pair<std::string, at::Tensor>> retained_;
  Watched kept_by_hooks_;
  std::vector<char> received_;
};

// This rank's inputs of a forward.
std::vector<at::Tensor> inputs_of(const Case& item, const Place& place, int samples);
// The loss of one forward: a mean over samples.
at::Tensor loss_of(const Case& item, const std::vector<at::Tensor>& outputs, int samples);

at::ScalarType scalar_type(Type type);

}  // namespace lockstep::fuzz
