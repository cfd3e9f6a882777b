#include "python/tensors.h"

#include <fmt/format.h>

#include "ddp/backends/tensor_check.h"
#include "lockstep/base/status.h"
#include "python/torch_work.h"

namespace lockstep::python {

void refuse(const std::string& operation, const std::string& reason) {
  throw_status(Status(StatusCode::invalid_argument, operation + ": " + reason));
}

void check_dense(const std::string& operation, const at::Tensor& tensor) {
  if (!tensor.defined()) refuse(operation, "a tensor is undefined");
  if (!tensor.device().is_cpu()) {
    refuse(operation,
           fmt::format("backend \"lockstep\" takes CPU tensors, this one is on {}; move it with .cpu(), or use "
                       "backend \"cpu:lockstep,cuda:nccl\" (PyTorch 2)",
                       tensor.device().str()));
  }
  if (tensor.layout() != at::kStrided) {
    refuse(operation, "the tensor is sparse; only all_reduce takes sparse tensors. Make it dense with .to_dense()");
  }
}

void check_dense(const std::string& operation, const std::vector<at::Tensor>& tensors) {
  for (const at::Tensor& tensor : tensors) check_dense(operation, tensor);
}

Buffer buffer_of(const at::Tensor& tensor) {
  const auto type = detail::engine_type(tensor.scalar_type());
  if (type) return {tensor.data_ptr(), static_cast<std::size_t>(tensor.numel()), *type};
  return {tensor.data_ptr(), static_cast<std::size_t>(tensor.numel()) * tensor.element_size(), DType::u8};
}

namespace {

ReduceOp engine_op(const std::string& operation, ::c10d::ReduceOp::RedOpType op) {
  using Op = ::c10d::ReduceOp;
  switch (op) {
    case Op::SUM: return ReduceOp::sum;
    case Op::AVG: return ReduceOp::avg;
    case Op::PRODUCT: return ReduceOp::prod;
    case Op::MIN: return ReduceOp::min;
    case Op::MAX: return ReduceOp::max;
    case Op::BAND: return ReduceOp::bit_and;
    case Op::BOR: return ReduceOp::bit_or;
    case Op::BXOR: return ReduceOp::bit_xor;
    default: refuse(operation, "PREMUL_SUM is an operation of NCCL; multiply before a SUM");
  }
}

// A sum of truth values is true if any is.
ReduceOp truth_op(const std::string& operation, ReduceOp op) {
  switch (op) {
    case ReduceOp::sum:
    case ReduceOp::max:
    case ReduceOp::bit_or: return ReduceOp::max;
    case ReduceOp::prod:
    case ReduceOp::min:
    case ReduceOp::bit_and: return ReduceOp::min;
    case ReduceOp::bit_xor: return op;
    case ReduceOp::avg: break;
  }
  refuse(operation, "truth values have no average");
}

}  // namespace

Reduction reduction_of(const std::string& operation, const at::Tensor& tensor, const ::c10d::ReduceOp& op) {
  const ReduceOp reduce = engine_op(operation, op);
  const Status status = detail::check_tensor("lockstep", at::kCPU, tensor, reduce);
  if (!status.ok()) refuse(operation, status.message());
  return {tensor.scalar_type() == at::kBool ? truth_op(operation, reduce) : reduce};
}

Flat flatten(const std::vector<at::Tensor>& tensors, bool copy) {
  std::int64_t count = 0;
  bool adjacent = !tensors.empty();
  for (const at::Tensor& tensor : tensors) {
    const auto* expected = static_cast<const std::byte*>(tensors.front().data_ptr()) + count * tensor.element_size();
    adjacent = adjacent && tensor.is_contiguous() && tensor.data_ptr() == expected &&
               tensor.storage().unsafeGetStorageImpl() == tensors.front().storage().unsafeGetStorageImpl();
    count += tensor.numel();
  }
  const at::NoGradGuard no_grad;
  if (adjacent) return {tensors.front().detach().as_strided({count}, {1}), true};
  if (tensors.empty()) return {at::empty({0}), false};
  at::Tensor flat = at::empty({count}, tensors.front().options().requires_grad(false));
  if (copy) {
    std::int64_t start = 0;
    for (const at::Tensor& tensor : tensors) {
      flat.narrow(0, start, tensor.numel()).view(tensor.sizes()).copy_(tensor.detach());
      start += tensor.numel();
    }
  }
  return {flat, false};
}

void unflatten(const at::Tensor& flat, const std::vector<at::Tensor>& tensors) {
  const at::NoGradGuard no_grad;
  std::int64_t start = 0;
  for (const at::Tensor& tensor : tensors) {
    tensor.detach().copy_(flat.narrow(0, start, tensor.numel()).view(tensor.sizes()));
    start += tensor.numel();
  }
}

}  // namespace lockstep::python
