#include "ddp/backends/tensor_check.h"

#include <fmt/format.h>

namespace lockstep::detail {

std::optional<DType> engine_type(at::ScalarType type) {
  switch (type) {
    case at::kFloat: return DType::f32;
    case at::kDouble: return DType::f64;
    case at::kHalf: return DType::f16;
    case at::kBFloat16: return DType::bf16;
    case at::kChar: return DType::i8;
    case at::kByte:
    case at::kBool: return DType::u8;
    case at::kInt: return DType::i32;
    case at::kLong: return DType::i64;
    default: return std::nullopt;
  }
}

Status check_tensor(const std::string& backend, c10::DeviceType device, const at::Tensor& tensor,
                    std::optional<ReduceOp> op) {
  if (tensor.device().type() != device) {
    if (device == at::kCPU && tensor.is_cuda()) {
      return {StatusCode::invalid_argument,
              fmt::format("backend \"{}\" takes CPU tensors, this one is on {}; ask init_process_group for backend "
                          "\"cpu:{},cuda:nccl\", or move it with .cpu()",
                          backend, tensor.device().str(), backend)};
    }
    const std::string kind = c10::DeviceTypeName(device);
    const std::string remedy =
        device == at::kCPU ? ".cpu()" : fmt::format(".to(\"{}\")", c10::DeviceTypeName(device, true));
    return {StatusCode::invalid_argument,
            fmt::format("backend \"{}\" takes {} tensors, this one is on {}; move it with {}", backend, kind,
                        tensor.device().str(), remedy)};
  }
  if (!engine_type(tensor.scalar_type())) {
    return {StatusCode::invalid_argument,
            fmt::format("backend \"{}\" has no type {}; convert the tensor to one of float, double, half, bfloat16, "
                        "int8, uint8, int32, int64, bool first",
                        backend, c10::toString(tensor.scalar_type()))};
  }
  if (op && at::isFloatingType(tensor.scalar_type()) &&
      (*op == ReduceOp::bit_and || *op == ReduceOp::bit_or || *op == ReduceOp::bit_xor)) {
    return {StatusCode::invalid_argument, fmt::format("{} is for integers, this tensor is of type {}",
                                                      lockstep::to_string(*op), c10::toString(tensor.scalar_type()))};
  }
  return {};
}

Operation engine_operation(const TensorOperation& operation, int label) {
  const auto buffer = [](const at::Tensor& tensor) -> Buffer {
    if (!tensor.defined()) return {};
    return {tensor.data_ptr(), static_cast<std::size_t>(tensor.numel()), *engine_type(tensor.scalar_type())};
  };
  return {.kind = operation.kind,
          .input = buffer(operation.input),
          .output = buffer(operation.output),
          .op = operation.op,
          .peer = operation.peer,
          .tag = is_collective(operation.kind) ? label : operation.tag,
          .counts = operation.counts,
          .timeout = operation.timeout};
}

}  // namespace lockstep::detail
