// The program that a user would write without DDP: forward, backward, then average every gradient with all_reduce.
#pragma once

#include <memory>
#include <vector>

#include "ddp/model_fuzz/pass.h"
#include "lockstep/ddp/process_group.h"

namespace lockstep::fuzz {

// What DDP must arrive at in one step.
struct Expected {
  std::vector<at::Tensor> gradients;  // by parameter; undefined: none
  std::vector<double> magnitudes;     // by parameter: the largest number that any rank contributed, summed over passes
  LocalGradients local;
  std::vector<at::Tensor> buffers;
  // Autograd left gradients of two parameters in the same memory, as it does for (a.view(-1) + b.view(-1)), and added
  // to them again in the same backward (checkpointed segments): the sums are wrong, with and without DDP.
  bool undefined_sums = false;
};

class HandProgram {
 public:
  HandProgram(const Case& item, std::shared_ptr<ProcessGroup> group, std::int64_t start);

  // Takes parameters, buffers and gradients over from another replica of this rank.
  void load(GraphModule& other);
  // Collective. `active`: the ranks that still train; a rank that does not contributes zeros.
  Expected step(int step, const std::vector<char>& active);
  // A plain optimizer step, for cases in which replicas are compared only afterwards (join).
  void optimize(double learning_rate);
  // Takes parameters and buffers from `root`.
  void broadcast_all(int root);
  GraphModule& module() { return *module_; }

 private:
  void average(const std::vector<char>& active, double scale, Expected& expected);
  // As DdpOptions::sample_weighted and JoinOptions define it.
  double scale_of(const std::vector<char>& active) const;
  double weight_of(int step, int micro, const std::vector<char>& active) const;
  bool is_weighted(std::size_t parameter) const;
  // Around a backward whose gradients are weighted: only what it adds is multiplied by the weight.
  void set_aside(int micro, const std::vector<char>& active);
  void add_weighted(double weight);
  bool averages() const;  // in the pass that ends now

  const Case& case_;
  const std::shared_ptr<ProcessGroup> group_;
  std::shared_ptr<GraphModule> module_;
  std::int64_t passes_ = 0;
  std::vector<at::Tensor> aside_;  // gradients of before the backward that runs
};

// Returns the program's memory of gradients, which they are views of, if they are (Zero::in_own_memory).
std::vector<at::Tensor> zero_gradients(GraphModule& module, Zero zero);

}  // namespace lockstep::fuzz
