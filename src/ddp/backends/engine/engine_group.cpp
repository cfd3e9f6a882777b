#include "ddp/backends/engine/engine_group.h"

#include "ddp/backends/tensor_check.h"
#include "ddp/group/operation_label.h"

namespace lockstep::detail {

const std::string& EngineGroup::backend() const {
  static const std::string name = "lockstep";
  return name;
}

Status EngineGroup::check(const at::Tensor& tensor, std::optional<ReduceOp> op) const {
  return check_tensor(backend(), at::kCPU, tensor, op);
}

// The tensors stay alive until the operation is complete, even if the caller drops them.
Work EngineGroup::submit(const TensorOperation& operation) {
  Work work = communicator_->submit(engine_operation(operation, OperationLabel::current()));
  work.then([input = operation.input, output = operation.output](const Status&) {});
  return work;
}

at::Tensor EngineGroup::empty(std::int64_t count, at::ScalarType dtype, at::Device device) {
  const std::size_t bytes = static_cast<std::size_t>(count) * c10::elementSize(dtype);
  const at::TensorOptions options = at::TensorOptions().dtype(dtype).device(device);
  if (bytes == 0 || !device.is_cpu()) return at::empty({count}, options);
  Memory memory = allocate(bytes);
  return at::from_blob(
      memory.data, {count}, [owner = std::move(memory.owner)](void*) {}, options);
}

ProcessGroup::Memory EngineGroup::allocate(std::size_t bytes) {
  std::shared_ptr<RegisteredMemory> memory = communicator_->allocate(bytes);
  std::byte* data = memory->data();
  return {data, std::move(memory)};
}

std::shared_ptr<ProcessGroup> EngineGroup::make_subgroup(std::span<const int> ranks, const std::string& name) {
  return std::make_shared<EngineGroup>(communicator_->new_group(ranks, name));
}

}  // namespace lockstep::detail
