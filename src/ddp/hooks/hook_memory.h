// Memory of the group that a hook keeps from step to step: one tensor per bucket and use.
#pragma once

#include <map>
#include <utility>

#include "lockstep/ddp/process_group.h"

namespace lockstep::detail {

class HookMemory {
 public:
  // Flat and uninitialised. Valid until a bucket of this index asks for another size, type or device, which
  // happens only when DDP has rebuilt its buckets.
  at::Tensor get(ProcessGroup& group, std::size_t bucket, int use, std::int64_t count, at::ScalarType dtype,
                 at::Device device = at::kCPU) {
    at::Tensor& tensor = tensors_[{bucket, use}];
    if (!tensor.defined() || tensor.numel() != count || tensor.scalar_type() != dtype || tensor.device() != device) {
      tensor = group.empty(count, dtype, device);
    }
    return tensor;
  }

 private:
  std::map<std::pair<std::size_t, int>, at::Tensor> tensors_;
};

}  // namespace lockstep::detail
