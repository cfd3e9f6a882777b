#include "ddp/backends/engine/engine_group.h"

#include "ddp/backends/tensor_check.h"

namespace lockstep::detail {

namespace {

Buffer buffer(const at::Tensor& tensor) {
  if (!tensor.defined()) return {};
  return {tensor.data_ptr(), static_cast<std::size_t>(tensor.numel()), *engine_type(tensor.scalar_type())};
}

// The tensors stay alive until the operation is complete, even if the caller drops them.
Work keep(Work work, at::Tensor first, at::Tensor second = {}) {
  work.then([first = std::move(first), second = std::move(second)](const Status&) {});
  return work;
}

}  // namespace

const std::string& EngineGroup::backend() const {
  static const std::string name = "lockstep";
  return name;
}

Status EngineGroup::check(const at::Tensor& tensor, std::optional<ReduceOp> op) const {
  return check_tensor(backend(), at::kCPU, tensor, op);
}

Work EngineGroup::all_reduce(const at::Tensor& tensor, const ReduceOptions& options) {
  return keep(group_->all_reduce_async(buffer(tensor), options), tensor);
}

Work EngineGroup::reduce(const at::Tensor& tensor, int root, const ReduceOptions& options) {
  return keep(group_->reduce_async(buffer(tensor), buffer(tensor), root, options), tensor);
}

Work EngineGroup::broadcast(const at::Tensor& tensor, int root, const CallOptions& options) {
  return keep(group_->broadcast_async(buffer(tensor), root, options), tensor);
}

Work EngineGroup::all_gather(const at::Tensor& input, const at::Tensor& output, const CallOptions& options) {
  return keep(group_->all_gather_async(buffer(input), buffer(output), options), input, output);
}

Work EngineGroup::all_gather_v(const at::Tensor& input, const at::Tensor& output, std::span<const std::size_t> counts,
                               const CallOptions& options) {
  return keep(group_->all_gather_v_async(buffer(input), buffer(output), counts, options), input, output);
}

Work EngineGroup::reduce_scatter(const at::Tensor& input, const at::Tensor& output, const ReduceOptions& options) {
  return keep(group_->reduce_scatter_async(buffer(input), buffer(output), options), input, output);
}

Work EngineGroup::gather(const at::Tensor& input, const at::Tensor& output, int root, const CallOptions& options) {
  return keep(group_->gather_async(buffer(input), buffer(output), root, options), input, output);
}

Work EngineGroup::scatter(const at::Tensor& input, const at::Tensor& output, int root, const CallOptions& options) {
  return keep(group_->scatter_async(buffer(input), buffer(output), root, options), input, output);
}

Work EngineGroup::all_to_all(const at::Tensor& input, const at::Tensor& output, const CallOptions& options) {
  return keep(group_->all_to_all_async(buffer(input), buffer(output), options), input, output);
}

Work EngineGroup::barrier(const CallOptions& options) { return group_->barrier_async(options); }

Work EngineGroup::send(const at::Tensor& tensor, int destination, int tag, const CallOptions& options) {
  return keep(group_->send_async(buffer(tensor), destination, tag, options), tensor);
}

Work EngineGroup::recv(const at::Tensor& tensor, int source, int tag, const CallOptions& options) {
  return keep(group_->recv_async(buffer(tensor), source, tag, options), tensor);
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
  std::shared_ptr<RegisteredMemory> memory = group_->allocate(bytes);
  std::byte* data = memory->data();
  return {data, std::move(memory)};
}

std::shared_ptr<ProcessGroup> EngineGroup::make_subgroup(std::span<const int> ranks, const std::string& name) {
  return std::make_shared<EngineGroup>(group_->new_group(ranks, name));
}

}  // namespace lockstep::detail
