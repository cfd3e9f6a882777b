// One step of a fused optimizer: the tensors that it reads and writes as plain memory, cut into pieces for the threads.
#pragma once

#include <ATen/ATen.h>

#include <array>
#include <cstddef>
#include <vector>

#include "lockstep/ddp/fused_optimizers.h"
#include "optim/update.h"

namespace lockstep::optim::detail {

// The type of an optimizer's state: f64 for f64, f32 for all others.
at::ScalarType state_type(const at::Tensor& parameter);
inline bool needs_master(const at::Tensor& parameter) {
  return parameter.scalar_type() == at::kHalf || parameter.scalar_type() == at::kBFloat16;
}

// A tensor in the memory order of another one: itself if it has that order, otherwise a copy.
struct Ordered {
  at::Tensor tensor;
  at::Tensor original;  // defined if `tensor` is a copy

  Ordered() = default;
  Ordered(const at::Tensor& of, at::IntArrayRef strides);
  std::byte* data() const { return tensor.defined() ? static_cast<std::byte*>(tensor.data_ptr()) : nullptr; }
  void write_back() const {
    if (original.defined()) original.copy_(tensor);
  }
};

// Usage: add() all parameters that have a gradient, prepare(), then set() each, then run().
class StepPlan {
 public:
  // Checks the parameter and its gradient. Throws Error.
  void add(const at::Tensor& parameter);
  std::size_t size() const { return entries_.size(); }
  const at::Tensor& parameter(std::size_t index) const { return entries_[index].parameter; }

  // Computes the norm if the options need it, and whether the step is to be made.
  StepResult prepare(const StepOptions& options);
  // `states` and `master` as in Shard; undefined tensors for those that there are not.
  void set(std::size_t index, const Rule& rule, const std::array<at::Tensor, kMaxStates>& states,
           const at::Tensor& master);
  // Updates everything.
  void run();

 private:
  struct Entry {
    at::Tensor parameter;
    std::vector<std::int64_t> strides;  // the order of all memory of this parameter
    DType dtype;
    std::size_t count;
    Ordered gradient, value, master;
    std::array<Ordered, kMaxStates> states;
    Rule rule;
    std::size_t first_block;  // in the list of all block sums
  };
  struct Piece {
    std::size_t entry, offset, count;
  };

  // Calls work(piece) for all elements, on the threads of LibTorch. Pieces begin at multiples of kNormBlock.
  template <typename Work>
  void for_each_piece(Work work);
  double sum_of_squares();

  std::vector<Entry> entries_;
  std::size_t blocks_ = 0;
  double scale_ = 1;
};

}  // namespace lockstep::optim::detail
