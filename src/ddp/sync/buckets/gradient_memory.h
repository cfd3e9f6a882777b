// Large gradients are allocated in registered memory.
//
// Autograd hands over gradients in tensors that it has just allocated. Copying them into a bucket
// costs a pass over memory. So while a backward runs, allocations of the sizes of large gradients
// are not served by LibTorch's CPU allocator but from memory of the group, which peers on the host
// reduce in place. A block returns to the pool when its tensor is freed (zero_grad), and the next
// backward uses it again. Other tensors of the same size are served too, which does no harm.
// docs/adr/0005 has the measurements.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "lockstep/ddp/process_group.h"

namespace lockstep::detail {

// Thread-safe. Blocks that are still in use when it is destroyed stay valid until they are freed.
class GradientMemory {
 public:
  // `sizes`: bytes of each gradient that is to be served.
  GradientMemory(const std::shared_ptr<ProcessGroup>& group, const std::vector<std::size_t>& sizes);
  ~GradientMemory();
  GradientMemory(const GradientMemory&) = delete;
  GradientMemory& operator=(const GradientMemory&) = delete;

  // Between open() and close(), allocations of these sizes by code that runs with gradients off (as
  // backward does), on any thread, are served. Both may be called repeatedly.
  void open();
  void close();
  // True if `address` is in one of the blocks.
  bool owns(const void* address) const;

  class Pool;

 private:
  std::shared_ptr<Pool> pool_;
  bool open_ = false;
};

}  // namespace lockstep::detail
