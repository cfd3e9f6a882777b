// How a call runs: each tensor is brought into a form that the backend takes (a Block), the backend's
// operation runs on the blocks, and if a block was a copy, its result is copied back before the Work
// is complete. On a device, the thread that waits queues the copy, on its stream.
#include "lockstep/ddp/collectives.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <functional>
#include <mutex>

#include "base/invalid_argument.h"
#include "communicator/work_state.h"
#include "ddp/group/non_member_group.h"

namespace lockstep {

namespace {

// Complex numbers are reduced as pairs of reals; autograd must not see what is done here.
at::Tensor plain(const char* operation, const at::Tensor& tensor, const ProcessGroup& group,
                 std::optional<ReduceOp> op) {
  if (!tensor.defined()) throw_invalid_argument(operation, "the tensor is undefined");
  if (tensor.layout() != at::kStrided) {
    throw_invalid_argument(operation, fmt::format("the tensor is not dense (layout {}); call .to_dense() first",
                                                  tensor.layout() == at::kSparse ? "sparse" : "other than strided"));
  }
  if (tensor.is_quantized())
    throw_invalid_argument(operation, "the tensor is quantized; send .int_repr() or .dequantize() instead");
  at::Tensor result = tensor.detach();
  if (result.is_complex()) {
    if (op && *op != ReduceOp::sum && *op != ReduceOp::avg) {
      throw_invalid_argument(operation,
                             fmt::format("{} is not defined for complex numbers; sum and avg are", to_string(*op)));
    }
    result = at::view_as_real(result);
  }
  throw_if_error(group.check(result, op).with_context(operation));
  if (op == ReduceOp::avg && result.scalar_type() == at::kBool) {
    throw_invalid_argument(operation, "avg is not defined for bool; convert the tensor to float first");
  }
  return result;
}

// bool is 0 or 1 in a byte: a sum must stay one, so it means "or".
ReduceOp operation_for(const at::Tensor& tensor, ReduceOp op) {
  if (tensor.scalar_type() != at::kBool) return op;
  if (op == ReduceOp::sum) return ReduceOp::max;
  if (op == ReduceOp::prod) return ReduceOp::min;
  return op;
}

void copy_values(const at::Tensor& to, const at::Tensor& from) {
  at::AutoDispatchBelowADInplaceOrView guard;  // may run on an engine thread, which has no autograd
  to.copy_(from);
}

// A tensor and the contiguous memory that represents it in the operation.
class Block {
 public:
  enum class Use { read, write, update };
  Block(const char* operation, const at::Tensor& tensor, const ProcessGroup& group, Use use,
        std::optional<ReduceOp> op = std::nullopt)
      : tensor_(plain(operation, tensor, group, op)), use_(use) {
    if (tensor_.is_contiguous()) {
      memory_ = tensor_;
    } else {
      memory_ = use == Use::write ? at::empty_like(tensor_, at::MemoryFormat::Contiguous) : tensor_.contiguous();
    }
  }

  const at::Tensor& memory() const { return memory_; }
  bool copies_back() const { return use_ != Use::read && !memory_.is_same(tensor_); }
  void copy_back() const { copy_values(tensor_, memory_); }

 private:
  at::Tensor tensor_;
  at::Tensor memory_;
  Use use_;
};

// A Work that is `work` and then, if it succeeded, `copy`.
Work copy_after(const Work& work, at::Device device, std::function<void()> copy) {
  if (device.is_cpu()) {
    work.then([copy = std::move(copy)](const Status& status) {
      if (status.ok()) copy();
    });
    return work;
  }
  // The thread that completes the operation does not have the stream on which the result is needed: the first thread
  // that waits does.
  auto state = std::make_shared<detail::WorkState>();
  state->set_arrival([work, copy = std::move(copy), once = std::make_shared<std::once_flag>()] {
    const Status status = work.wait(Deadline::at(Deadline::Clock::time_point::max()));
    if (status.ok()) std::call_once(*once, copy);
    return status;
  });
  work.then([state](const Status& status) { state->complete(status); });
  return Work(state);
}

Work finish(Work work, Block block) {
  if (!block.copies_back()) return work;
  const at::Device device = block.memory().device();
  return copy_after(work, device, [block = std::move(block)] { block.copy_back(); });
}

// Several tensors one after the other in one block of memory: checks that they fit together.
at::Tensor flat_memory(const char* operation, const char* what, const std::vector<at::Tensor>& tensors,
                       std::size_t expected, const at::Tensor& like, const ProcessGroup& group, bool equal_sizes) {
  if (tensors.size() != expected) {
    throw_invalid_argument(
        operation, fmt::format("{} holds {} tensors, but the group has {} ranks", what, tensors.size(), expected));
  }
  std::int64_t total = 0;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const at::Tensor tensor = plain(operation, tensors[i], group, std::nullopt);
    if (tensor.scalar_type() != like.scalar_type()) {
      throw_invalid_argument(operation,
                             fmt::format("{}[{}] is of type {}, the other tensor of type {}", what, i,
                                         c10::toString(tensor.scalar_type()), c10::toString(like.scalar_type())));
    }
    if (tensor.device() != like.device()) {
      throw_invalid_argument(operation, fmt::format("{}[{}] is on {}, the other tensor on {}; move one of them", what,
                                                    i, tensor.device().str(), like.device().str()));
    }
    if (equal_sizes && tensor.numel() != like.numel()) {
      throw_invalid_argument(
          operation, fmt::format("{}[{}] has {} elements, but {} are needed", what, i, tensor.numel(), like.numel()));
    }
    total += tensor.numel();
  }
  return at::empty({total}, like.options());
}

std::vector<at::Tensor> parts(const at::Tensor& flat, const std::vector<at::Tensor>& shapes) {
  std::vector<at::Tensor> result;
  std::int64_t offset = 0;
  for (const at::Tensor& shape : shapes) {
    const at::Tensor as_real = shape.is_complex() ? at::view_as_real(shape.detach()) : shape.detach();
    result.push_back(flat.narrow(0, offset, as_real.numel()).view(as_real.sizes()));
    offset += as_real.numel();
  }
  return result;
}

void pack(const at::Tensor& flat, const std::vector<at::Tensor>& tensors) {
  const std::vector<at::Tensor> places = parts(flat, tensors);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const at::Tensor from = tensors[i].detach();
    copy_values(places[i], from.is_complex() ? at::view_as_real(from) : from);
  }
}

Work unpack_after(Work work, at::Tensor flat, std::vector<at::Tensor> tensors) {
  const at::Device device = flat.device();
  return copy_after(work, device, [flat = std::move(flat), tensors = std::move(tensors)] {
    at::AutoDispatchBelowADInplaceOrView guard;
    const std::vector<at::Tensor> places = parts(flat, tensors);
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      const at::Tensor to = tensors[i].detach();
      copy_values(to.is_complex() ? at::view_as_real(to) : to, places[i]);
    }
  });
}

ReduceOptions call_options(const at::Tensor& tensor, const TensorReduceOptions& options) {
  return {.op = operation_for(tensor, options.op), .timeout = options.timeout};
}
CallOptions call_options(const TensorCallOptions& options) { return {.timeout = options.timeout}; }

// Ranks that are not in the group have nothing to do: a Work that is complete.
std::optional<Work> nothing_to_do(const char* operation, const std::shared_ptr<ProcessGroup>& group) {
  const auto* other_ranks = dynamic_cast<const detail::NonMemberGroup*>(group.get());
  if (other_ranks == nullptr) return std::nullopt;
  other_ranks->warn_once(operation);
  auto state = std::make_shared<detail::WorkState>();
  state->complete(Status());
  return Work(std::move(state));
}

// The rank in `group` of a global rank.
int group_rank(const char* operation, int global_rank, const ProcessGroup& group) {
  const int rank = group.group_rank(global_rank);
  if (rank < 0) {
    throw_invalid_argument(
        operation, fmt::format("global rank {} is not in the group, which has the global ranks {}; roots and peers are "
                               "given as global ranks (get_global_rank() translates ranks of a group)",
                               global_rank, fmt::join(group.global_ranks(), ", ")));
  }
  return rank;
}

// `large` is `small` once per rank.
void check_ratio(const char* operation, const char* large_name, const at::Tensor& large, const char* small_name,
                 const at::Tensor& small, int size) {
  if (large.scalar_type() != small.scalar_type()) {
    throw_invalid_argument(
        operation, fmt::format("{} is of type {}, {} of type {}", large_name, c10::toString(large.scalar_type()),
                               small_name, c10::toString(small.scalar_type())));
  }
  if (large.numel() != small.numel() * size) {
    throw_invalid_argument(operation,
                           fmt::format("{} has {} elements, but {} ranks times {} elements of {} make {}", large_name,
                                       large.numel(), size, small.numel(), small_name, small.numel() * size));
  }
}

}  // namespace

Work all_reduce_async(const at::Tensor& tensor, const TensorReduceOptions& options) {
  if (auto done = nothing_to_do("all_reduce", options.group)) return *done;
  const auto group = group_or_default(options.group);
  Block block("all_reduce", tensor, *group, Block::Use::update, options.op);
  Work work = group->all_reduce(block.memory(), call_options(block.memory(), options));
  return finish(std::move(work), std::move(block));
}

Work reduce_async(const at::Tensor& tensor, int dst, const TensorReduceOptions& options) {
  if (auto done = nothing_to_do("reduce", options.group)) return *done;
  const auto group = group_or_default(options.group);
  const int root = group_rank("reduce", dst, *group);
  Block block("reduce", tensor, *group, Block::Use::update, options.op);
  Work work = group->reduce(block.memory(), root, call_options(block.memory(), options));
  return finish(std::move(work), std::move(block));
}

Work broadcast_async(const at::Tensor& tensor, int src, const TensorCallOptions& options) {
  if (auto done = nothing_to_do("broadcast", options.group)) return *done;
  const auto group = group_or_default(options.group);
  const int root = group_rank("broadcast", src, *group);
  Block block("broadcast", tensor, *group, group->rank() == root ? Block::Use::read : Block::Use::write);
  Work work = group->broadcast(block.memory(), root, call_options(options));
  return finish(std::move(work), std::move(block));
}

Work all_gather_async(const std::vector<at::Tensor>& outputs, const at::Tensor& input,
                      const TensorCallOptions& options) {
  if (auto done = nothing_to_do("all_gather", options.group)) return *done;
  const auto group = group_or_default(options.group);
  Block block("all_gather", input, *group, Block::Use::read);
  const at::Tensor flat = flat_memory("all_gather", "outputs", outputs, group->size(), block.memory(), *group, false);
  std::vector<std::size_t> counts;
  for (const at::Tensor& output : outputs) counts.push_back(output.numel() * (output.is_complex() ? 2 : 1));
  if (counts[group->rank()] != static_cast<std::size_t>(block.memory().numel())) {
    throw_invalid_argument(
        "all_gather", fmt::format("outputs[{}] is this rank's own and must have the {} elements of the input, not {}",
                                  group->rank(), input.numel(), outputs[group->rank()].numel()));
  }
  Work work = group->all_gather_v(block.memory(), flat, counts, call_options(options));
  return unpack_after(std::move(work), flat, outputs);
}

Work all_gather_into_tensor_async(const at::Tensor& output, const at::Tensor& input, const TensorCallOptions& options) {
  if (auto done = nothing_to_do("all_gather_into_tensor", options.group)) return *done;
  const auto group = group_or_default(options.group);
  Block from("all_gather_into_tensor", input, *group, Block::Use::read);
  Block to("all_gather_into_tensor", output, *group, Block::Use::write);
  check_ratio("all_gather_into_tensor", "output", to.memory(), "input", from.memory(), group->size());
  Work work = group->all_gather(from.memory(), to.memory(), call_options(options));
  return finish(std::move(work), std::move(to));
}

Work reduce_scatter_tensor_async(const at::Tensor& output, const at::Tensor& input,
                                 const TensorReduceOptions& options) {
  if (auto done = nothing_to_do("reduce_scatter_tensor", options.group)) return *done;
  const auto group = group_or_default(options.group);
  Block from("reduce_scatter_tensor", input, *group, Block::Use::read, options.op);
  Block to("reduce_scatter_tensor", output, *group, Block::Use::write, options.op);
  check_ratio("reduce_scatter_tensor", "input", from.memory(), "output", to.memory(), group->size());
  Work work = group->reduce_scatter(from.memory(), to.memory(), call_options(to.memory(), options));
  return finish(std::move(work), std::move(to));
}

Work reduce_scatter_async(const at::Tensor& output, const std::vector<at::Tensor>& inputs,
                          const TensorReduceOptions& options) {
  if (auto done = nothing_to_do("reduce_scatter", options.group)) return *done;
  const auto group = group_or_default(options.group);
  Block to("reduce_scatter", output, *group, Block::Use::write, options.op);
  const at::Tensor flat = flat_memory("reduce_scatter", "inputs", inputs, group->size(), to.memory(), *group, true);
  pack(flat, inputs);
  Work work = group->reduce_scatter(flat, to.memory(), call_options(to.memory(), options));
  return finish(std::move(work), std::move(to));
}

Work gather_async(const at::Tensor& input, const std::vector<at::Tensor>& outputs, int dst,
                  const TensorCallOptions& options) {
  if (auto done = nothing_to_do("gather", options.group)) return *done;
  const auto group = group_or_default(options.group);
  const int root = group_rank("gather", dst, *group);
  Block block("gather", input, *group, Block::Use::read);
  if (group->rank() != root) return group->gather(block.memory(), {}, root, call_options(options));
  const at::Tensor flat = flat_memory("gather", "outputs", outputs, group->size(), block.memory(), *group, true);
  return unpack_after(group->gather(block.memory(), flat, root, call_options(options)), flat, outputs);
}

Work scatter_async(const at::Tensor& output, const std::vector<at::Tensor>& inputs, int src,
                   const TensorCallOptions& options) {
  if (auto done = nothing_to_do("scatter", options.group)) return *done;
  const auto group = group_or_default(options.group);
  const int root = group_rank("scatter", src, *group);
  Block block("scatter", output, *group, Block::Use::write);
  at::Tensor flat;
  if (group->rank() == root) {
    flat = flat_memory("scatter", "inputs", inputs, group->size(), block.memory(), *group, true);
    pack(flat, inputs);
  }
  Work work = group->scatter(flat, block.memory(), root, call_options(options));
  return finish(std::move(work), std::move(block));
}

Work all_to_all_async(const std::vector<at::Tensor>& outputs, const std::vector<at::Tensor>& inputs,
                      const TensorCallOptions& options) {
  if (auto done = nothing_to_do("all_to_all", options.group)) return *done;
  const auto group = group_or_default(options.group);
  if (inputs.empty()) throw_invalid_argument("all_to_all", "inputs is empty");
  const at::Tensor like = plain("all_to_all", inputs[0], *group, std::nullopt);
  const at::Tensor from = flat_memory("all_to_all", "inputs", inputs, group->size(), like, *group, true);
  const at::Tensor to = flat_memory("all_to_all", "outputs", outputs, group->size(), like, *group, true);
  pack(from, inputs);
  return unpack_after(group->all_to_all(from, to, call_options(options)), to, outputs);
}

Work all_to_all_single_async(const at::Tensor& output, const at::Tensor& input, const TensorCallOptions& options) {
  if (auto done = nothing_to_do("all_to_all_single", options.group)) return *done;
  const auto group = group_or_default(options.group);
  Block from("all_to_all_single", input, *group, Block::Use::read);
  Block to("all_to_all_single", output, *group, Block::Use::write);
  if (from.memory().numel() != to.memory().numel() || from.memory().scalar_type() != to.memory().scalar_type()) {
    throw_invalid_argument("all_to_all_single", "input and output must have the same type and number of elements");
  }
  if (from.memory().numel() % group->size() != 0) {
    throw_invalid_argument("all_to_all_single", fmt::format("{} elements cannot be split evenly between {} ranks",
                                                            from.memory().numel(), group->size()));
  }
  Work work = group->all_to_all(from.memory(), to.memory(), call_options(options));
  return finish(std::move(work), std::move(to));
}

Work send_async(const at::Tensor& tensor, int dst, int tag, const TensorCallOptions& options) {
  if (auto done = nothing_to_do("send", options.group)) return *done;
  const auto group = group_or_default(options.group);
  const int peer = group_rank("send", dst, *group);
  Block block("send", tensor, *group, Block::Use::read);
  return group->send(block.memory(), peer, tag, call_options(options));
}

Work recv_async(const at::Tensor& tensor, int src, int tag, const TensorCallOptions& options) {
  if (auto done = nothing_to_do("recv", options.group)) return *done;
  const auto group = group_or_default(options.group);
  const int peer = group_rank("recv", src, *group);
  Block block("recv", tensor, *group, Block::Use::write);
  Work work = group->recv(block.memory(), peer, tag, call_options(options));
  return finish(std::move(work), std::move(block));
}

Work barrier_async(const TensorCallOptions& options) {
  if (auto done = nothing_to_do("barrier", options.group)) return *done;
  return group_or_default(options.group)->barrier(call_options(options));
}

void all_reduce(const at::Tensor& tensor, const TensorReduceOptions& options) {
  all_reduce_async(tensor, options).wait();
}
void reduce(const at::Tensor& tensor, int dst, const TensorReduceOptions& options) {
  reduce_async(tensor, dst, options).wait();
}
void broadcast(const at::Tensor& tensor, int src, const TensorCallOptions& options) {
  broadcast_async(tensor, src, options).wait();
}
void all_gather(const std::vector<at::Tensor>& outputs, const at::Tensor& input, const TensorCallOptions& options) {
  all_gather_async(outputs, input, options).wait();
}
void all_gather_into_tensor(const at::Tensor& output, const at::Tensor& input, const TensorCallOptions& options) {
  all_gather_into_tensor_async(output, input, options).wait();
}
void reduce_scatter(const at::Tensor& output, const std::vector<at::Tensor>& inputs,
                    const TensorReduceOptions& options) {
  reduce_scatter_async(output, inputs, options).wait();
}
void reduce_scatter_tensor(const at::Tensor& output, const at::Tensor& input, const TensorReduceOptions& options) {
  reduce_scatter_tensor_async(output, input, options).wait();
}
void gather(const at::Tensor& input, const std::vector<at::Tensor>& outputs, int dst,
            const TensorCallOptions& options) {
  gather_async(input, outputs, dst, options).wait();
}
void scatter(const at::Tensor& output, const std::vector<at::Tensor>& inputs, int src,
             const TensorCallOptions& options) {
  scatter_async(output, inputs, src, options).wait();
}
void all_to_all(const std::vector<at::Tensor>& outputs, const std::vector<at::Tensor>& inputs,
                const TensorCallOptions& options) {
  all_to_all_async(outputs, inputs, options).wait();
}
void all_to_all_single(const at::Tensor& output, const at::Tensor& input, const TensorCallOptions& options) {
  all_to_all_single_async(output, input, options).wait();
}
void send(const at::Tensor& tensor, int dst, int tag, const TensorCallOptions& options) {
  send_async(tensor, dst, tag, options).wait();
}
void recv(const at::Tensor& tensor, int src, int tag, const TensorCallOptions& options) {
  recv_async(tensor, src, tag, options).wait();
}
void barrier(const TensorCallOptions& options) { barrier_async(options).wait(); }

void monitored_barrier(std::chrono::milliseconds timeout, const std::shared_ptr<ProcessGroup>& group) {
  if (nothing_to_do("monitored_barrier", group)) return;
  barrier({.group = group, .timeout = timeout});
}

}  // namespace lockstep
