// Tensors as the engine's buffers, and the checks and copies between the two.
#pragma once

#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include <string>
#include <vector>

#include "lockstep/collectives/types.h"

namespace lockstep::python {

// Throws ValueError, naming the operation.
[[noreturn]] void refuse(const std::string& operation, const std::string& reason);

// Throws ValueError unless the tensor is dense and on the CPU.
void check_dense(const std::string& operation, const at::Tensor& tensor);
void check_dense(const std::string& operation, const std::vector<at::Tensor>& tensors);
// c10d passes one tensor, or one list, for each device of the process: here there is exactly one.
template <typename Value>
Value& only(const char* operation, std::vector<Value>& values) {
  if (values.size() != 1) refuse(operation, "one tensor (or one list of tensors) for each rank is needed");
  return values.front();
}

// The memory of a contiguous tensor. Types that the engine does not have are sent as bytes.
Buffer buffer_of(const at::Tensor& tensor);
// The same for an operation that reduces. bool is reduced as a truth value. Throws ValueError if the engine has no such
// operation for this type.
struct Reduction {
  ReduceOp op;
};
Reduction reduction_of(const std::string& operation, const at::Tensor& tensor, const ::c10d::ReduceOp& op);

// A contiguous tensor that holds the tensors one after the other, all of one type: a view if they already are adjacent
// in memory, else new memory, with their content if `copy`.
struct Flat {
  at::Tensor tensor;
  bool is_view = false;
};
Flat flatten(const std::vector<at::Tensor>& tensors, bool copy);
// Copies what flatten() made into the tensors.
void unflatten(const at::Tensor& flat, const std::vector<at::Tensor>& tensors);

}  // namespace lockstep::python
