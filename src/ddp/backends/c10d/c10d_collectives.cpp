// Each collective of ProcessGroup in terms of c10d's. Tensors that are only moved go as bytes, so that every type
// can be moved that has a size; reductions go as the type that the engine can reduce.
#include <ATen/core/LegacyTypeDispatch.h>
#include <fmt/format.h>

#include <algorithm>

#include "ddp/backends/c10d/c10d_group.h"

#if LOCKSTEP_HAS_C10D

namespace lockstep::detail {

// The group is asked to reduce `original`; the engine reduces `reduced`, which may be the same memory. `finish`
// brings the result of a sum into the form that was asked for, in `reduced`.
struct C10dGroup::Reduction {
  at::Tensor original;
  at::Tensor reduced;
  ::c10d::ReduceOp op;
  std::function<void()> finish;

  bool is_copy() const { return !reduced.is_same(original) && reduced.data_ptr() != original.data_ptr(); }
};

namespace {

// What is done here is no business of autograd.
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

std::string name_of(const char* kind, const at::Tensor& tensor, const std::string& more = "") {
  return fmt::format("{}(count {}, {}{})", kind, tensor.numel(), c10::toString(tensor.scalar_type()), more);
}

std::string name_of(const char* kind, const at::Tensor& tensor, lockstep::ReduceOp op) {
  return name_of(kind, tensor, fmt::format(", {}", lockstep::to_string(op)));
}

bool is_half(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kHalf || tensor.scalar_type() == at::kBFloat16;
}

}  // namespace

C10dGroup::Reduction C10dGroup::prepare(const at::Tensor& tensor, ReduceOp op) const {
  const C10dBackendTraits& traits = engine_->traits;
  const bool widen = is_half(tensor) && !traits.reduces_half;
  const at::Tensor original = tensor.scalar_type() == at::kBool ? bytes(tensor) : flat(tensor);
  Reduction reduction{original, original, c10d_op(op, traits.averages), nullptr};
  if (widen) {
    NoAutograd guard;
    reduction.reduced = original.to(at::kFloat);
  }
  if (op == ReduceOp::avg && !traits.averages) {
    reduction.finish = [reduced = reduction.reduced, ranks = size()] { divide(reduced, ranks); };
  }
  return reduction;
}

Work C10dGroup::issue(C10dOperation operation, std::optional<std::chrono::milliseconds> timeout,
                      const std::function<C10dWork()>& start) {
  operation.timeout = timeout.value_or(timeouts_.operation);
  return lane_->issue(std::move(operation), start);
}

Work C10dGroup::meet_without_data(std::string name, std::optional<std::chrono::milliseconds> timeout) {
  return issue({.name = std::move(name)}, timeout, [&] {
    ::c10d::BarrierOptions call;
    if (device_.has_index()) call.device_ids = {device_.index()};
    return backend_->barrier(call);
  });
}

Work C10dGroup::all_reduce(const at::Tensor& tensor, const ReduceOptions& options) {
  std::string name = name_of("all_reduce", tensor, options.op);
  if (tensor.numel() == 0) return meet_without_data(std::move(name), options.timeout);
  const Reduction reduction = prepare(tensor, options.op);
  Tensors tensors{reduction.reduced};
  return issue({.name = std::move(name),
                .tensors = {tensor, reduction.reduced},
                .finish =
                    [reduction] {
                      if (reduction.finish) reduction.finish();
                      if (reduction.is_copy()) copy_into(reduction.original, reduction.reduced);
                    }},
               options.timeout, [&] {
                 ::c10d::AllreduceOptions call;
                 call.reduceOp = reduction.op;
                 return backend_->allreduce(tensors, call);
               });
}

Work C10dGroup::reduce(const at::Tensor& tensor, int root, const ReduceOptions& options) {
  std::string name = name_of("reduce", tensor, fmt::format(", {}, root {}", lockstep::to_string(options.op), root));
  if (tensor.numel() == 0) return meet_without_data(std::move(name), options.timeout);
  Reduction reduction = prepare(tensor, options.op);
  const bool is_root = rank() == root;
  // Engines use the other ranks' tensors as they like.
  if (!is_root && !reduction.is_copy()) reduction.reduced = copy_of(reduction.original);
  Tensors tensors{reduction.reduced};
  return issue({.name = std::move(name),
                .tensors = {tensor, reduction.reduced},
                .finish =
                    [reduction, is_root] {
                      if (!is_root) return;
                      if (reduction.finish) reduction.finish();
                      if (reduction.is_copy()) copy_into(reduction.original, reduction.reduced);
                    }},
               options.timeout, [&] {
                 ::c10d::ReduceOptions call;
                 call.reduceOp = reduction.op;
                 call.rootRank = root;
                 return backend_->reduce(tensors, call);
               });
}

Work C10dGroup::reduce_scatter(const at::Tensor& input, const at::Tensor& output, const ReduceOptions& options) {
  std::string name = name_of("reduce_scatter", output, options.op);
  if (output.numel() == 0) return meet_without_data(std::move(name), options.timeout);
  Reduction reduction = prepare(input, options.op);
  if (engine_->traits.reduce_scatters && !reduction.is_copy() && !reduction.finish) {
    at::Tensor from = reduction.reduced, to = flat(output);
    return issue({.name = std::move(name), .tensors = {input, output}}, options.timeout, [&] {
      ::c10d::ReduceScatterOptions call;
      call.reduceOp = reduction.op;
      return backend_->_reduce_scatter_base(to, from, call);
    });
  }
  if (!reduction.is_copy()) reduction.reduced = copy_of(reduction.original);  // the input must stay as it is
  at::Tensor part = parts_of(reduction.reduced, size())[static_cast<std::size_t>(rank())];
  const bool divides = reduction.finish != nullptr;
  Tensors tensors{reduction.reduced};
  return issue({.name = std::move(name),
                .tensors = {input, output, reduction.reduced},
                .finish =
                    [part, output, divides, ranks = size()] {
                      if (divides) divide(part, ranks);
                      copy_into(part.scalar_type() == at::kByte ? bytes(output) : flat(output), part);
                    }},
               options.timeout, [&] {
                 ::c10d::AllreduceOptions call;
                 call.reduceOp = reduction.op;
                 return backend_->allreduce(tensors, call);
               });
}

Work C10dGroup::broadcast(const at::Tensor& tensor, int root, const CallOptions& options) {
  std::string name = name_of("broadcast", tensor, fmt::format(", root {}", root));
  if (tensor.numel() == 0) return meet_without_data(std::move(name), options.timeout);
  Tensors tensors{bytes(tensor)};
  return issue({.name = std::move(name), .tensors = {tensor}}, options.timeout, [&] {
    ::c10d::BroadcastOptions call;
    call.rootRank = root;
    return backend_->broadcast(tensors, call);
  });
}

Work C10dGroup::all_gather(const at::Tensor& input, const at::Tensor& output, const CallOptions& options) {
  std::string name = name_of("all_gather", input);
  if (input.numel() == 0) return meet_without_data(std::move(name), options.timeout);
  if (engine_->traits.gathers_flat) {
    at::Tensor from = bytes(input), to = bytes(output);
    return issue({.name = std::move(name), .tensors = {input, output}}, options.timeout,
                 [&] { return backend_->_allgather_base(to, from); });
  }
  Tensors inputs{bytes(input)};
  std::vector<Tensors> outputs{parts_of(bytes(output), size())};
  return issue({.name = std::move(name), .tensors = {input, output}}, options.timeout,
               [&] { return backend_->allgather(outputs, inputs); });
}

Work C10dGroup::all_gather_v(const at::Tensor& input, const at::Tensor& output, std::span<const std::size_t> counts,
                             const CallOptions& options) {
  const std::size_t most = *std::max_element(counts.begin(), counts.end());
  if (std::all_of(counts.begin(), counts.end(), [most](std::size_t count) { return count == most; })) {
    return all_gather(input, output, options);
  }
  // c10d's engines want equal sizes: the shorter ones are filled up.
  const std::int64_t width = input.element_size();
  const auto longest = static_cast<std::int64_t>(most) * width;
  const auto row = input.options().dtype(at::kByte).requires_grad(false);
  const at::Tensor padded = at::empty({longest}, row);
  const at::Tensor gathered = at::empty({size() * longest}, row);
  copy_into(padded.narrow(0, 0, input.numel() * width), bytes(input));
  Tensors inputs{padded};
  std::vector<Tensors> outputs{parts_of(gathered, size())};
  const auto unpack = [to = bytes(output), parts = outputs[0], width,
                       sizes = std::vector<std::size_t>(counts.begin(), counts.end())] {
    std::int64_t offset = 0;
    for (std::size_t rank = 0; rank < sizes.size(); ++rank) {
      const std::int64_t length = static_cast<std::int64_t>(sizes[rank]) * width;
      copy_into(to.narrow(0, offset, length), parts[rank].narrow(0, 0, length));
      offset += length;
    }
  };
  return issue({.name = name_of("all_gather_v", input), .tensors = {output, padded, gathered}, .finish = unpack},
               options.timeout, [&] { return backend_->allgather(outputs, inputs); });
}

Work C10dGroup::gather(const at::Tensor& input, const at::Tensor& output, int root, const CallOptions& options) {
  std::string name = name_of("gather", input, fmt::format(", root {}", root));
  if (input.numel() == 0) return meet_without_data(std::move(name), options.timeout);
  Tensors inputs{bytes(input)};
  std::vector<Tensors> outputs;
  if (rank() == root) outputs.push_back(parts_of(bytes(output), size()));
  return issue({.name = std::move(name), .tensors = {input, output}}, options.timeout, [&] {
    ::c10d::GatherOptions call;
    call.rootRank = root;
    return backend_->gather(outputs, inputs, call);
  });
}

Work C10dGroup::scatter(const at::Tensor& input, const at::Tensor& output, int root, const CallOptions& options) {
  std::string name = name_of("scatter", output, fmt::format(", root {}", root));
  if (output.numel() == 0) return meet_without_data(std::move(name), options.timeout);
  Tensors outputs{bytes(output)};
  std::vector<Tensors> inputs;
  if (rank() == root) inputs.push_back(parts_of(bytes(input), size()));
  return issue({.name = std::move(name), .tensors = {input, output}}, options.timeout, [&] {
    ::c10d::ScatterOptions call;
    call.rootRank = root;
    return backend_->scatter(outputs, inputs, call);
  });
}

Work C10dGroup::all_to_all(const at::Tensor& input, const at::Tensor& output, const CallOptions& options) {
  std::string name = name_of("all_to_all", input);
  if (input.numel() == 0) return meet_without_data(std::move(name), options.timeout);
  at::Tensor from = bytes(input), to = bytes(output);
  return issue({.name = std::move(name), .tensors = {input, output}}, options.timeout, [&] {
    std::vector<std::int64_t> equal;  // none given: equal parts
    return backend_->alltoall_base(to, from, equal, equal);
  });
}

Work C10dGroup::barrier(const CallOptions& options) { return meet_without_data("barrier", options.timeout); }

void C10dGroup::check_tag(int tag) const {
  if (tag == 0 || engine_->traits.tags) return;
  throw Error(
      {StatusCode::invalid_argument,
       fmt::format("backend \"{}\" has no tags: messages between two ranks arrive in order; tag is {} and must be 0",
                   backend(), tag)});
}

Work C10dGroup::send(const at::Tensor& tensor, int destination, int tag, const CallOptions& options) {
  check_tag(tag);
  Tensors tensors{bytes(tensor)};
  return issue({.name = name_of("send", tensor, fmt::format(", to rank {}, tag {}", destination, tag)),
                .message = true,
                .tensors = {tensor}},
               options.timeout, [&] { return backend_->send(tensors, destination, tag); });
}

Work C10dGroup::recv(const at::Tensor& tensor, int source, int tag, const CallOptions& options) {
  check_tag(tag);
  Tensors tensors{bytes(tensor)};
  return issue({.name = name_of("recv", tensor, fmt::format(", from rank {}, tag {}", source, tag)),
                .message = true,
                .tensors = {tensor}},
               options.timeout, [&] { return backend_->recv(tensors, source, tag); });
}

}  // namespace lockstep::detail

#endif
