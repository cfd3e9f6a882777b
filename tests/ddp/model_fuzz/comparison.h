// Comparing what DDP arrived at with what it must arrive at. Remembers the first difference.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ddp/model_fuzz/hand_program.h"
#include "ddp/model_fuzz/outcome.h"

namespace lockstep::fuzz {

class Comparison {
 public:
  Comparison(const Case& item, std::shared_ptr<ProcessGroup> group) : case_(item), group_(std::move(group)) {}

  // Gradients after step `step`, the local ones that the program can see, and buffers.
  void step(int step, const Expected& expected, GraphModule& module, const LocalGradients& local);
  // The averaged gradients alone, as they were after a step.
  void gradients(int step, const Expected& expected, const std::vector<at::Tensor>& gradients);
  void whole_batch(int step, const Expected& expected, const std::vector<at::Tensor>& gradients, GraphModule& module);
  // Bit for bit, over all ranks. Collective.
  void across_ranks(const std::string& check, int step, const std::vector<at::Tensor>& tensors);
  // True if close; else remembers the difference. `tolerance` is absolute.
  bool close(const std::string& check, const std::string& tensor, int step, const at::Tensor& actual,
             const at::Tensor& expected, double tolerance);

  const Outcome& outcome() const { return outcome_; }

 private:
  void wrong(const std::string& check, const std::string& detail);
  double tolerance(std::size_t parameter, const Expected& expected) const;

  const Case& case_;
  const std::shared_ptr<ProcessGroup> group_;
  Outcome outcome_;
};

}  // namespace lockstep::fuzz
