// Which tensors a backend takes: the same types on all of them.
#pragma once

#include <ATen/ATen.h>

#include <optional>
#include <string>

#include "lockstep/base/status.h"
#include "lockstep/collectives/types.h"

namespace lockstep::detail {

// The engine's name of a type; bool goes as u8.
std::optional<DType> engine_type(at::ScalarType type);

// Ok if the tensor is on a `device` and of a type that every backend moves and, where `op` is given, reduces; else
// why not, and what to do instead. `backend` is for the message.
Status check_tensor(const std::string& backend, c10::DeviceType device, const at::Tensor& tensor,
                    std::optional<ReduceOp> op);

}  // namespace lockstep::detail
