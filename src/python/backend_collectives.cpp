// The collectives of TorchBackend that are operations of the engine, and messages.
#include <fmt/format.h>

#include "python/backend.h"
#include "python/tensors.h"

namespace lockstep::python {
namespace {

using ::c10d::OpType;

enum class Access { read, write };

// The tensor itself, or a contiguous copy. If it is written, the copy is copied back at the end of the task.
at::Tensor stage(Task& task, const at::Tensor& tensor, Access access) {
  if (tensor.is_contiguous()) {
    task.tensors.push_back(tensor);
    return tensor;
  }
  const at::NoGradGuard no_grad;
  at::Tensor copy = tensor.detach().contiguous();
  task.tensors.push_back(copy);
  if (access == Access::write) {
    task.finally.push_back([tensor, copy] {
      const at::NoGradGuard none;
      tensor.detach().copy_(copy);
    });
  }
  return copy;
}

at::Tensor stage_list(Task& task, const std::vector<at::Tensor>& tensors, Access access) {
  const Flat flat = flatten(tensors, access == Access::read);
  task.tensors.push_back(flat.tensor);
  if (access == Access::write && !flat.is_view) {
    task.finally.push_back([tensors, all = flat.tensor] { unflatten(all, tensors); });
  }
  return flat.tensor;
}

bool equal_sizes(const std::vector<at::Tensor>& tensors) {
  return std::all_of(tensors.begin(), tensors.end(),
                     [&](const at::Tensor& tensor) { return tensor.numel() == tensors.front().numel(); });
}

}  // namespace

// One tensor for each rank, of the type of `like`.
void TorchBackend::check_list(const std::string& operation, const Tensors& tensors, const at::Tensor& like) const {
  if (static_cast<int>(tensors.size()) != getSize()) {
    refuse(operation, fmt::format("the list has {} tensors, but the group has {} ranks", tensors.size(), getSize()));
  }
  check_dense(operation, tensors);
  for (const at::Tensor& tensor : tensors) {
    if (tensor.scalar_type() == like.scalar_type()) continue;
    refuse(operation, fmt::format("a tensor of the list has type {}, the other one {}",
                                  c10::toString(tensor.scalar_type()), c10::toString(like.scalar_type())));
  }
}

TorchBackend::WorkPointer TorchBackend::broadcast(Tensors& tensors, const ::c10d::BroadcastOptions& options) {
  const at::Tensor& tensor = only("broadcast", tensors);
  check_dense("broadcast", tensor);
  Task task = begin(OpType::BROADCAST, "broadcast", tensors, {tensors});
  const int root = static_cast<int>(options.rootRank);
  const at::Tensor staged = stage(task, tensor, root == getRank() ? Access::read : Access::write);
  task.operations = {Operation::broadcast(buffer_of(staged), root, {.timeout = timeout_of(options.timeout)})};
  return issue(std::move(task));
}

void TorchBackend::add_all_reduce(Task& task, const at::Tensor& tensor, const ::c10d::ReduceOp& op,
                                  Timeout timeout) const {
  check_dense("all_reduce", tensor);
  const Reduction reduction = reduction_of("all_reduce", tensor, op);
  const at::Tensor staged = stage(task, tensor, Access::write);
  task.operations.push_back(Operation::all_reduce(buffer_of(staged), {.op = reduction.op, .timeout = timeout}));
}

TorchBackend::WorkPointer TorchBackend::allreduce(Tensors& tensors, const ::c10d::AllreduceOptions& options) {
  const at::Tensor& tensor = only("all_reduce", tensors);
  if (tensor.is_sparse()) return allreduce_sparse(tensors, options);
  Task task = begin(OpType::ALLREDUCE, "all_reduce", tensors, {tensors});
  add_all_reduce(task, tensor, options.reduceOp, timeout_of(options.timeout));
  return issue(std::move(task));
}

TorchBackend::WorkPointer TorchBackend::allreduce_coalesced(Tensors& tensors,
                                                            const ::c10d::AllreduceCoalescedOptions& options) {
  Task task = begin(OpType::ALLREDUCE_COALESCED, "all_reduce", tensors, {tensors});
  for (const at::Tensor& tensor : tensors) {
    add_all_reduce(task, tensor, options.reduceOp, timeout_of(options.timeout));
  }
  return issue(std::move(task));
}

TorchBackend::WorkPointer TorchBackend::reduce(Tensors& tensors, const ::c10d::ReduceOptions& options) {
  const at::Tensor& tensor = only("reduce", tensors);
  check_dense("reduce", tensor);
  const Reduction reduction = reduction_of("reduce", tensor, options.reduceOp);
  Task task = begin(OpType::REDUCE, "reduce", tensors, {tensors});
  const int root = static_cast<int>(options.rootRank);
  const at::Tensor staged = stage(task, tensor, root == getRank() ? Access::write : Access::read);
  task.operations = {
      Operation::reduce(buffer_of(staged), root, {.op = reduction.op, .timeout = timeout_of(options.timeout)})};
  return issue(std::move(task));
}

// Every rank has the whole list, so that all of them know the sizes, even if these differ.
void TorchBackend::add_all_gather(Task& task, const at::Tensor& input, const Tensors& outputs, Timeout timeout) const {
  check_dense("all_gather", input);
  check_list("all_gather", outputs, input);
  const at::Tensor& own = outputs[static_cast<std::size_t>(getRank())];
  if (own.numel() != input.numel()) {
    refuse("all_gather", fmt::format("the input has {} elements, but output {}, which is for this rank, has {}",
                                     input.numel(), getRank(), own.numel()));
  }
  const Buffer from = buffer_of(stage(task, input, Access::read));
  const Buffer to = buffer_of(stage_list(task, outputs, Access::write));
  if (equal_sizes(outputs)) {
    task.operations.push_back(Operation::all_gather(from, to, {.timeout = timeout}));
    return;
  }
  const std::size_t unit = from.dtype == DType::u8 ? input.element_size() : 1;  // types that are sent as bytes
  for (const at::Tensor& output : outputs) task.counts.push_back(static_cast<std::size_t>(output.numel()) * unit);
  task.operations.push_back(Operation::all_gather_v(from, to, task.counts, {.timeout = timeout}));
}

TorchBackend::WorkPointer TorchBackend::allgather(TensorLists& outputs, Tensors& inputs,
                                                  const ::c10d::AllgatherOptions& options) {
  Task task = begin(OpType::ALLGATHER, "all_gather", inputs, outputs);
  add_all_gather(task, only("all_gather", inputs), only("all_gather", outputs), timeout_of(options.timeout));
  return issue(std::move(task));
}

TorchBackend::WorkPointer TorchBackend::allgather_coalesced(TensorLists& outputs, Tensors& inputs,
                                                            const ::c10d::AllgatherOptions& options) {
  // outputs[r] has rank r's tensors.
  if (static_cast<int>(outputs.size()) != getSize()) {
    refuse("all_gather_coalesced",
           fmt::format("output tensor lists: {} lists for {} ranks", outputs.size(), getSize()));
  }
  Task task = begin(OpType::ALLGATHER_COALESCED, "all_gather", inputs, outputs);
  for (std::size_t index = 0; index < inputs.size(); ++index) {
    Tensors list;
    for (const Tensors& of_rank : outputs) {
      if (of_rank.size() != inputs.size()) {
        refuse("all_gather_coalesced",
               fmt::format("a list has {} outputs for {} inputs", of_rank.size(), inputs.size()));
      }
      list.push_back(of_rank[index]);
    }
    if (!equal_sizes(list)) refuse("all_gather_coalesced", "the outputs for one input have different sizes");
    add_all_gather(task, inputs[index], list, timeout_of(options.timeout));
  }
  return issue(std::move(task));
}

void TorchBackend::add_all_gather_flat(Task& task, const at::Tensor& input, const at::Tensor& output,
                                       Timeout timeout) const {
  check_dense("all_gather_into_tensor", input);
  check_dense("all_gather_into_tensor", output);
  if (input.scalar_type() != output.scalar_type() || output.numel() != getSize() * input.numel()) {
    refuse(
        "all_gather_into_tensor",
        fmt::format("the input has {} elements of type {}; the output must have {} of the same type, not {} of type {}",
                    input.numel(), c10::toString(input.scalar_type()), getSize() * input.numel(), output.numel(),
                    c10::toString(output.scalar_type())));
  }
  const Buffer from = buffer_of(stage(task, input, Access::read));
  const Buffer to = buffer_of(stage(task, output, Access::write));
  task.operations.push_back(Operation::all_gather(from, to, {.timeout = timeout}));
}

TorchBackend::WorkPointer TorchBackend::_allgather_base(at::Tensor& output, at::Tensor& input,
                                                        const ::c10d::AllgatherOptions& options) {
  Task task = begin(OpType::_ALLGATHER_BASE, "all_gather", {input}, {{output}});
  add_all_gather_flat(task, input, output, timeout_of(options.timeout));
  return issue(std::move(task));
}

TorchBackend::WorkPointer TorchBackend::allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                                        const ::c10d::AllgatherOptions& options) {
  if (outputs.size() != inputs.size()) refuse("all_gather_into_tensor", "as many outputs as inputs are needed");
  Task task = begin(OpType::ALLGATHER_COALESCED, "all_gather", inputs, {outputs});
  for (std::size_t index = 0; index < inputs.size(); ++index) {
    add_all_gather_flat(task, inputs[index], outputs[index], timeout_of(options.timeout));
  }
  return issue(std::move(task));
}

TorchBackend::WorkPointer TorchBackend::gather(TensorLists& outputs, Tensors& inputs,
                                               const ::c10d::GatherOptions& options) {
  const at::Tensor& input = only("gather", inputs);
  check_dense("gather", input);
  const int root = static_cast<int>(options.rootRank);
  Task task = begin(OpType::GATHER, "gather", inputs, outputs);
  const Buffer from = buffer_of(stage(task, input, Access::read));
  Buffer to(nullptr, 0, from.dtype);
  if (root == getRank()) {
    const Tensors& list = only("gather", outputs);
    check_list("gather", list, input);
    if (!equal_sizes(list) || list.front().numel() != input.numel()) {
      refuse("gather", "all outputs must have as many elements as the input");
    }
    to = buffer_of(stage_list(task, list, Access::write));
  } else if (!outputs.empty()) {
    refuse("gather", "only the root has outputs");
  }
  task.operations = {Operation::gather(from, to, root, {.timeout = timeout_of(options.timeout)})};
  return issue(std::move(task));
}

TorchBackend::WorkPointer TorchBackend::scatter(Tensors& outputs, TensorLists& inputs,
                                                const ::c10d::ScatterOptions& options) {
  const at::Tensor& output = only("scatter", outputs);
  check_dense("scatter", output);
  const int root = static_cast<int>(options.rootRank);
  Task task =
      begin(OpType::SCATTER, "scatter", root == getRank() && !inputs.empty() ? inputs.front() : Tensors(), {outputs});
  const Buffer to = buffer_of(stage(task, output, Access::write));
  ConstBuffer from(nullptr, 0, to.dtype);
  if (root == getRank()) {
    const Tensors& list = only("scatter", inputs);
    check_list("scatter", list, output);
    if (!equal_sizes(list) || list.front().numel() != output.numel()) {
      refuse("scatter", "all inputs must have as many elements as the output");
    }
    from = buffer_of(stage_list(task, list, Access::read));
  } else if (!inputs.empty()) {
    refuse("scatter", "only the root has inputs");
  }
  task.operations = {Operation::scatter(from, to, root, {.timeout = timeout_of(options.timeout)})};
  return issue(std::move(task));
}

// Blocks of different sizes are reduced one after the other, each to its rank.
void TorchBackend::add_reduce_scatter(Task& task, const Tensors& inputs, const at::Tensor& output,
                                      const ::c10d::ReduceOp& op, Timeout timeout) const {
  check_dense("reduce_scatter", output);
  check_list("reduce_scatter", inputs, output);
  const Reduction reduction = reduction_of("reduce_scatter", output, op);
  const at::Tensor& own = inputs[static_cast<std::size_t>(getRank())];
  if (own.numel() != output.numel()) {
    refuse("reduce_scatter", fmt::format("the output has {} elements, but input {}, which is for this rank, has {}",
                                         output.numel(), getRank(), own.numel()));
  }
  const ReduceOptions options{.op = reduction.op, .timeout = timeout};
  const Buffer to = buffer_of(stage(task, output, Access::write));
  if (equal_sizes(inputs)) {
    const Buffer from = buffer_of(stage_list(task, inputs, Access::read));
    task.operations.push_back(Operation::reduce_scatter(from, to, options));
    return;
  }
  for (int root = 0; root < getSize(); ++root) {
    const Buffer from = buffer_of(stage(task, inputs[static_cast<std::size_t>(root)], Access::read));
    task.operations.push_back(
        Operation::reduce(from, root == getRank() ? to : Buffer(nullptr, 0, to.dtype), root, options));
  }
}

TorchBackend::WorkPointer TorchBackend::reduce_scatter(Tensors& outputs, TensorLists& inputs,
                                                       const ::c10d::ReduceScatterOptions& options) {
  const Tensors& list = only("reduce_scatter", inputs);
  Task task = begin(OpType::REDUCE_SCATTER, "reduce_scatter", list, {outputs});
  add_reduce_scatter(task, list, only("reduce_scatter", outputs), options.reduceOp, timeout_of(options.timeout));
  return issue(std::move(task));
}

void TorchBackend::add_reduce_scatter_flat(Task& task, const at::Tensor& input, const at::Tensor& output,
                                           const ::c10d::ReduceOp& op, Timeout timeout) const {
  check_dense("reduce_scatter_tensor", input);
  check_dense("reduce_scatter_tensor", output);
  if (input.scalar_type() != output.scalar_type() || input.numel() != getSize() * output.numel()) {
    refuse(
        "reduce_scatter_tensor",
        fmt::format("the output has {} elements of type {}; the input must have {} of the same type, not {} of type {}",
                    output.numel(), c10::toString(output.scalar_type()), getSize() * output.numel(), input.numel(),
                    c10::toString(input.scalar_type())));
  }
  const Reduction reduction = reduction_of("reduce_scatter_tensor", output, op);
  const Buffer from = buffer_of(stage(task, input, Access::read));
  const Buffer to = buffer_of(stage(task, output, Access::write));
  task.operations.push_back(Operation::reduce_scatter(from, to, {.op = reduction.op, .timeout = timeout}));
}

TorchBackend::WorkPointer TorchBackend::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                             const ::c10d::ReduceScatterOptions& options) {
  Task task = begin(OpType::_REDUCE_SCATTER_BASE, "reduce_scatter", {input}, {{output}});
  add_reduce_scatter_flat(task, input, output, options.reduceOp, timeout_of(options.timeout));
  return issue(std::move(task));
}

TorchBackend::WorkPointer TorchBackend::reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                                        const ::c10d::ReduceScatterOptions& options) {
  if (outputs.size() != inputs.size()) refuse("reduce_scatter_tensor", "as many outputs as inputs are needed");
  Task task = begin(OpType::REDUCE_SCATTER, "reduce_scatter", inputs, {outputs});
  for (std::size_t index = 0; index < inputs.size(); ++index) {
    add_reduce_scatter_flat(task, inputs[index], outputs[index], options.reduceOp, timeout_of(options.timeout));
  }
  return issue(std::move(task));
}

TorchBackend::WorkPointer TorchBackend::barrier(const ::c10d::BarrierOptions& options) {
  Task task = begin(OpType::BARRIER, "barrier", {}, {});
  task.operations = {Operation::barrier({.timeout = timeout_of(options.timeout)})};
  return issue(std::move(task));
}

}  // namespace lockstep::python
