#include "ddp/backends/c10d/c10d_collectives.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "ddp/backends/tensor_check.h"
#include "ddp/group/operation_label.h"

#if LOCKSTEP_HAS_C10D

namespace lockstep::detail {

// The group is asked to reduce `original`; the engine reduces `reduced`, which may be the same memory. `finish`
// converts the result of a sum into the requested form, in `reduced`.
struct C10dCollectives::Reduction {
  at::Tensor original;
  at::Tensor reduced;
  ::c10d::ReduceOp op;
  std::function<void()> finish;

  bool is_copy() const { return !reduced.is_same(original) && reduced.data_ptr() != original.data_ptr(); }
};

namespace {

// Autograd must not record what is done here.
using NoAutograd = at::AutoDispatchBelowADInplaceOrView;

// The tensor's memory as a row, whatever its strides are: it is one block.
at::Tensor flat(const at::Tensor& tensor) {
  NoAutograd guard;
  return tensor.as_strided({tensor.numel()}, {1}, tensor.storage_offset());
}

at::Tensor bytes(const at::Tensor& tensor) { return tensor.defined() ? flat(tensor).view(at::kByte) : tensor; }

at::Tensor copy_of(const at::Tensor& tensor) {
  NoAutograd guard;
  return tensor.clone();
}

void copy_into(const at::Tensor& to, const at::Tensor& from) {
  NoAutograd guard;
  to.copy_(from);
}

void divide(const at::Tensor& tensor, int ranks) {
  NoAutograd guard;
  if (at::isIntegralType(tensor.scalar_type(), /*includeBool=*/true)) {
    tensor.div_(ranks, "trunc");
  } else {
    tensor.div_(ranks);
  }
}

std::vector<at::Tensor> parts_of(const at::Tensor& row, int count) {
  NoAutograd guard;
  return row.chunk(count);
}

::c10d::ReduceOp c10d_op(lockstep::ReduceOp op, bool averages) {
  using Op = ::c10d::ReduceOp;
  switch (op) {
    case lockstep::ReduceOp::sum: return Op(Op::SUM);
    case lockstep::ReduceOp::avg: return Op(averages ? Op::AVG : Op::SUM);
    case lockstep::ReduceOp::prod: return Op(Op::PRODUCT);
    case lockstep::ReduceOp::min: return Op(Op::MIN);
    case lockstep::ReduceOp::max: return Op(Op::MAX);
    case lockstep::ReduceOp::bit_and: return Op(Op::BAND);
    case lockstep::ReduceOp::bit_or: return Op(Op::BOR);
    case lockstep::ReduceOp::bit_xor: return Op(Op::BXOR);
  }
  return Op(Op::SUM);
}

// "send(count 100, Float, to rank 1, tag 0)"
std::string name_of_message(const TensorOperation& operation) {
  const at::Tensor& tensor = operation.tensor();
  return fmt::format("{}(count {}, {}, {} rank {}, tag {})", lockstep::to_string(operation.kind), tensor.numel(),
                     c10::toString(tensor.scalar_type()), operation.kind == OperationKind::send ? "to" : "from",
                     operation.peer, operation.tag);
}

bool is_half(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kHalf || tensor.scalar_type() == at::kBFloat16;
}

}  // namespace

C10dCollectives::Reduction C10dCollectives::prepare(const TensorOperation& operation) const {
  const C10dBackendTraits& traits = engine_.traits;
  const at::Tensor& tensor = operation.input;
  const bool widen = is_half(tensor) && !traits.reduces_half;
  const at::Tensor original = tensor.scalar_type() == at::kBool ? bytes(tensor) : flat(tensor);
  Reduction reduction{original, original, c10d_op(operation.op, traits.averages), nullptr};
  if (widen) {
    NoAutograd guard;
    reduction.reduced = original.to(at::kFloat);
  }
  if (operation.op == ReduceOp::avg && !traits.averages) {
    reduction.finish = [reduced = reduction.reduced, ranks = size_] { divide(reduced, ranks); };
  }
  return reduction;
}

Work C10dCollectives::issue(const TensorOperation& operation, Tensors tensors, std::function<void()> finish,
                            const std::function<C10dWork()>& start) {
  C10dOperation issued{
      .tensors = std::move(tensors), .finish = std::move(finish), .timeout = operation.timeout.value_or(timeout_)};
  if (is_collective(operation.kind)) {
    issued.collective = descriptor_of(engine_operation(operation, OperationLabel::current()), size_);
  } else {
    issued.name = name_of_message(operation);
  }
  return lane_.issue(std::move(issued), start);
}

Work C10dCollectives::submit(const TensorOperation& operation) {
  // A collective without elements is a barrier under its own name. all_gather_v is an exception: only some of its ranks
  // may have no elements.
  const bool is_empty = operation.tensor().defined() && operation.tensor().numel() == 0;
  if (is_empty && is_collective(operation.kind) && operation.kind != OperationKind::all_gather_v) {
    return barrier(operation);
  }
  const bool in_place = operation.kind == OperationKind::all_reduce || operation.kind == OperationKind::reduce ||
                        operation.kind == OperationKind::broadcast;
  if (in_place && !operation.input.is_same(operation.output)) {
    throw Error({StatusCode::invalid_argument,
                 fmt::format("{}: input and output must be the same tensor", lockstep::to_string(operation.kind))});
  }
  switch (operation.kind) {
    case OperationKind::barrier: return barrier(operation);
    case OperationKind::all_reduce: return all_reduce(operation);
    case OperationKind::reduce: return reduce(operation);
    case OperationKind::broadcast: return broadcast(operation);
    case OperationKind::all_gather: return all_gather(operation);
    case OperationKind::all_gather_v: return all_gather_v(operation);
    case OperationKind::reduce_scatter: return reduce_scatter(operation);
    case OperationKind::gather: return gather(operation);
    case OperationKind::scatter: return scatter(operation);
    case OperationKind::all_to_all: return all_to_all(operation);
    case OperationKind::send: return send(operation);
    case OperationKind::recv: return recv(operation);
  }
  throw Error({StatusCode::internal, "unknown kind of operation"});
}

Work C10dCollectives::barrier(const TensorOperation& operation) {
  return issue(operation, {}, nullptr, [&] {
    ::c10d::BarrierOptions call;
    if (device_.has_index()) call.device_ids = {device_.index()};
    return backend_.barrier(call);
  });
}

Work C10dCollectives::all_reduce(const TensorOperation& operation) {
  const Reduction reduction = prepare(operation);
  Tensors tensors{reduction.reduced};
  const auto finish = [reduction, output = operation.output] {
    if (reduction.finish) reduction.finish();
    if (reduction.is_copy()) copy_into(reduction.original, reduction.reduced);
  };
  return issue(operation, {operation.output, reduction.reduced}, finish, [&] {
    ::c10d::AllreduceOptions call;
    call.reduceOp = reduction.op;
    return backend_.allreduce(tensors, call);
  });
}

Work C10dCollectives::reduce(const TensorOperation& operation) {
  Reduction reduction = prepare(operation);
  const bool is_root = rank_ == operation.peer;
  // Engines may overwrite the other ranks' tensors.
  if (!is_root && !reduction.is_copy()) reduction.reduced = copy_of(reduction.original);
  Tensors tensors{reduction.reduced};
  const auto finish = [reduction, is_root] {
    if (!is_root) return;
    if (reduction.finish) reduction.finish();
    if (reduction.is_copy()) copy_into(reduction.original, reduction.reduced);
  };
  return issue(operation, {operation.input, reduction.reduced}, finish, [&] {
    ::c10d::ReduceOptions call;
    call.reduceOp = reduction.op;
    call.rootRank = operation.peer;
    return backend_.reduce(tensors, call);
  });
}

Work C10dCollectives::reduce_scatter(const TensorOperation& operation) {
  const auto& [input, output] = std::tie(operation.input, operation.output);
  Reduction reduction = prepare(operation);
  if (engine_.traits.reduce_scatters && !reduction.is_copy() && !reduction.finish) {
    at::Tensor from = reduction.reduced, to = flat(output);
    return issue(operation, {input, output}, nullptr, [&] {
      ::c10d::ReduceScatterOptions call;
      call.reduceOp = reduction.op;
      return backend_._reduce_scatter_base(to, from, call);
    });
  }
  if (!reduction.is_copy()) reduction.reduced = copy_of(reduction.original);  // the input must stay as it is
  at::Tensor part = parts_of(reduction.reduced, size_)[static_cast<std::size_t>(rank_)];
  const auto finish = [part, to = output, divides = reduction.finish != nullptr, ranks = size_] {
    if (divides) divide(part, ranks);
    copy_into(part.scalar_type() == at::kByte ? bytes(to) : flat(to), part);
  };
  Tensors tensors{reduction.reduced};
  return issue(operation, {input, output, reduction.reduced}, finish, [&] {
    ::c10d::AllreduceOptions call;
    call.reduceOp = reduction.op;
    return backend_.allreduce(tensors, call);
  });
}

Work C10dCollectives::broadcast(const TensorOperation& operation) {
  Tensors tensors{bytes(operation.output)};
  return issue(operation, {operation.output}, nullptr, [&] {
    ::c10d::BroadcastOptions call;
    call.rootRank = operation.peer;
    return backend_.broadcast(tensors, call);
  });
}

Work C10dCollectives::all_gather(const TensorOperation& operation) {
  at::Tensor from = bytes(operation.input), to = bytes(operation.output);
  if (engine_.traits.gathers_flat) {
    return issue(operation, {operation.input, operation.output}, nullptr,
                 [&] { return backend_._allgather_base(to, from); });
  }
  Tensors inputs{from};
  std::vector<Tensors> outputs{parts_of(to, size_)};
  return issue(operation, {operation.input, operation.output}, nullptr,
               [&] { return backend_.allgather(outputs, inputs); });
}

Work C10dCollectives::all_gather_v(const TensorOperation& operation) {
  const std::vector<std::size_t>& counts = operation.counts;
  const at::Tensor& input = operation.input;
  const std::size_t most = *std::max_element(counts.begin(), counts.end());
  if (std::all_of(counts.begin(), counts.end(), [most](std::size_t count) { return count == most; })) {
    TensorOperation equal = operation;
    equal.kind = OperationKind::all_gather;
    return submit(equal);
  }
  // c10d's engines need equal sizes: the shorter ones are padded.
  const std::int64_t width = input.element_size();
  const auto longest = static_cast<std::int64_t>(most) * width;
  const auto row = input.options().dtype(at::kByte).requires_grad(false);
  const at::Tensor padded = at::empty({longest}, row);
  const at::Tensor gathered = at::empty({size_ * longest}, row);
  copy_into(padded.narrow(0, 0, input.numel() * width), bytes(input));
  Tensors inputs{padded};
  std::vector<Tensors> outputs{parts_of(gathered, size_)};
  const auto unpack = [to = bytes(operation.output), parts = outputs[0], width, counts] {
    std::int64_t offset = 0;
    for (std::size_t rank = 0; rank < counts.size(); ++rank) {
      const std::int64_t length = static_cast<std::int64_t>(counts[rank]) * width;
      copy_into(to.narrow(0, offset, length), parts[rank].narrow(0, 0, length));
      offset += length;
    }
  };
  return issue(operation, {operation.output, padded, gathered}, unpack,
               [&] { return backend_.allgather(outputs, inputs); });
}

Work C10dCollectives::gather(const TensorOperation& operation) {
  Tensors inputs{bytes(operation.input)};
  std::vector<Tensors> outputs;
  if (rank_ == operation.peer) outputs.push_back(parts_of(bytes(operation.output), size_));
  return issue(operation, {operation.input, operation.output}, nullptr, [&] {
    ::c10d::GatherOptions call;
    call.rootRank = operation.peer;
    return backend_.gather(outputs, inputs, call);
  });
}

Work C10dCollectives::scatter(const TensorOperation& operation) {
  Tensors outputs{bytes(operation.output)};
  std::vector<Tensors> inputs;
  if (rank_ == operation.peer) inputs.push_back(parts_of(bytes(operation.input), size_));
  return issue(operation, {operation.input, operation.output}, nullptr, [&] {
    ::c10d::ScatterOptions call;
    call.rootRank = operation.peer;
    return backend_.scatter(outputs, inputs, call);
  });
}

Work C10dCollectives::all_to_all(const TensorOperation& operation) {
  at::Tensor from = bytes(operation.input), to = bytes(operation.output);
  return issue(operation, {operation.input, operation.output}, nullptr, [&] {
    std::vector<std::int64_t> equal;  // none given: equal parts
    return backend_.alltoall_base(to, from, equal, equal);
  });
}

void C10dCollectives::check_tag(int tag) const {
  if (tag == 0 || engine_.traits.tags) return;
  throw Error(
      {StatusCode::invalid_argument,
       fmt::format("backend \"{}\" has no tags: messages between two ranks arrive in order; tag is {} and must be 0",
                   engine_.name, tag)});
}

Work C10dCollectives::send(const TensorOperation& operation) {
  check_tag(operation.tag);
  Tensors tensors{bytes(operation.input)};
  return issue(operation, {operation.input}, nullptr,
               [&] { return backend_.send(tensors, operation.peer, operation.tag); });
}

Work C10dCollectives::recv(const TensorOperation& operation) {
  check_tag(operation.tag);
  Tensors tensors{bytes(operation.output)};
  return issue(operation, {operation.output}, nullptr,
               [&] { return backend_.recv(tensors, operation.peer, operation.tag); });
}

}  // namespace lockstep::detail

#endif
