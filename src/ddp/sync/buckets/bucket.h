// A bucket: gradients that are reduced together, and the memory that this happens in.
//
// A packed bucket has memory of its own (the group's, on the parameters' device), into which gradients are copied. A
// bucket of one large gradient needs none as long as it can be reduced in the gradient's own memory, wherever autograd
// put it. Uses tensors and their device's streams, not autograd. Not thread-safe.
#pragma once

#include <vector>

#include "ddp/sync/stream_set.h"
#include "lockstep/ddp/comm_hook.h"

namespace lockstep::detail {

// Strides of a parameter's gradient: the parameter's own if they fill its memory without gaps, as autograd does it.
// Ranks add their gradients in the order of memory, so these must be equal on all ranks.
std::vector<std::int64_t> gradient_strides(const at::Tensor& parameter);

class Bucket {
 public:
  // `parameters`: this bucket's, in order; all of one dtype, on one device. `strides`: of their gradients. `alone`:
  // there is one, reduced in place.
  using Strides = std::vector<std::int64_t>;
  Bucket(ProcessGroup& group, std::vector<at::Tensor> parameters, std::vector<Strides> strides, bool alone);

  std::size_t size() const { return parameters_.size(); }
  std::int64_t bytes() const { return count_ * static_cast<std::int64_t>(c10::elementSize(dtype_)); }
  bool alone() const { return alone_; }
  at::Device device() const { return parameters_[0].device(); }

  // Takes the gradient of the slot-th parameter in, times `scale` (exactly 0 makes it zero, even if
  // it is NaN). `gradient` may be undefined: zero. Alone, the bucket borrows the gradient's memory, or, if that
  // memory must stay as it is, uses its own.
  enum class Memory { the_gradients, own };
  void put(std::size_t slot, const at::Tensor& gradient, double scale, Memory memory = Memory::the_gradients);
  // What is reduced: flat and contiguous. All slots must have been put.
  const at::Tensor& flat() const { return flat_; }
  // On a device: makes this thread's current stream wait for all that was put, on whatever streams. Before flat() is
  // given away.
  void gather_streams();
  GradBucket for_hook(std::size_t index, bool is_last) const;
  // After the reduction: the slot's gradient, shaped as the parameter. In the bucket's own memory it is valid until the
  // next put().
  const at::Tensor& reduced(std::size_t slot) const { return views_[slot]; }
  // True if reduced(slot) is the memory of `gradient` itself, so that nothing has to be copied.
  bool in_place(std::size_t slot, const at::Tensor& gradient) const;
  // True if `gradient` is in the bucket's own memory.
  bool owns(const at::Tensor& gradient) const;
  // Drops a gradient's memory that was borrowed for the pass.
  void release();

 private:
  void adopt(const at::Tensor& gradient);

  ProcessGroup& group_;
  const std::vector<at::Tensor> parameters_;
  const std::vector<Strides> strides_;
  const bool alone_;
  at::ScalarType dtype_;
  std::int64_t count_ = 0;
  at::Tensor flat_;                // alone: only during a pass
  std::vector<at::Tensor> views_;  // alone: only during a pass
  at::Tensor own_;                 // alone: made when a gradient's memory could not be used, then kept
  StreamSet put_on_;               // of this pass; empty on the CPU
};

}  // namespace lockstep::detail
