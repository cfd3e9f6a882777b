// Which tensors a backend takes (the same types on all of them), and operations on them in the engine's terms.
#pragma once

#include <ATen/ATen.h>

#include <optional>
#include <string>

#include "lockstep/base/status.h"
#include "lockstep/collectives/types.h"
#include "lockstep/ddp/process_group.h"

namespace lockstep::detail {

// The engine's type for a tensor's type; bool is sent as u8.
std::optional<DType> engine_type(at::ScalarType type);

// Ok if the tensor is on a `device` and of a type that every backend can send and, if `op` is given, reduce; else the
// reason, and what to do instead. `backend` is for the message.
Status check_tensor(const std::string& backend, c10::DeviceType device, const at::Tensor& tensor,
                    std::optional<ReduceOp> op);

// The same operation on the tensors' memory, for an engine without tensors. A collective gets the label: that of the
// thread (group/operation_label.h). Valid as long as `operation`.
Operation engine_operation(const TensorOperation& operation, int label);

}  // namespace lockstep::detail
