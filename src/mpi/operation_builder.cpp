#include "mpi/operation_builder.h"

#include <fmt/format.h>

#include <climits>
#include <functional>
#include <numeric>
#include <vector>

#include "collectives/kernels/kernels.h"
#include "communicator/call_checks.h"
#include "mpi/half_reduction.h"

namespace lockstep::mpi {
namespace {

void check_elements(std::string_view call, std::size_t count) {
  if (count <= INT_MAX) return;
  throw Error(
      {StatusCode::invalid_argument,
       fmt::format("{}: {} elements, but MPI takes at most {} in one call; split the tensor", call, count, INT_MAX)});
}

// `avg` is the sum, divided on every rank.
int mpi_op(ReduceOp op) { return static_cast<int>(op == ReduceOp::avg ? ReduceOp::sum : op); }

void divide(Buffer data, int divisor) {
  const std::byte* const source[] = {static_cast<const std::byte*>(data.data)};
  std::byte* const target[] = {static_cast<std::byte*>(data.data)};
  lockstep::reduce(data.dtype, ReduceOp::avg, source, target, data.count, divisor);
}

std::function<Status(std::size_t)> divide_after(ReduceOp op, Buffer data, int size) {
  if (op != ReduceOp::avg || size == 1) return {};
  return [data, size](std::size_t) {
    divide(data, size);
    return Status();
  };
}

// MPI takes no null pointers, not even for nothing.
void* some(void* data) {
  static std::byte nothing[16];
  return data != nullptr ? data : nothing;
}

class OperationBuilder {
 public:
  OperationBuilder(const lockstep::Operation& operation, const OperationContext& context, std::shared_ptr<void> memory)
      : call_(to_string(operation.kind)),
        operation_(operation),
        input_(operation.input),
        output_(operation.output),
        context_(context),
        mpi_(context.mpi),
        comm_(context.comm),
        size_(static_cast<std::size_t>(context.size)),
        is_root_(context.rank == operation.peer) {
    built_.timeout = operation.timeout.value_or(context.timeout);
    if (is_collective(operation.kind)) built_.collective = descriptor_of(operation, context.size);
    built_.memory = std::move(memory);
  }

  ChannelOperation build() {
    switch (operation_.kind) {
      case OperationKind::barrier: barrier(); break;
      case OperationKind::all_reduce: all_reduce(); break;
      case OperationKind::reduce: reduce(); break;
      case OperationKind::broadcast: broadcast(); break;
      case OperationKind::all_gather: all_gather(); break;
      case OperationKind::all_gather_v: all_gather_v(); break;
      case OperationKind::reduce_scatter: reduce_scatter(); break;
      case OperationKind::gather: gather(); break;
      case OperationKind::scatter: scatter(); break;
      case OperationKind::all_to_all: all_to_all(); break;
      case OperationKind::send: send(); break;
      case OperationKind::recv: recv(); break;
    }
    return std::move(built_);
  }

 private:
  using Request = lockstep_mpi_request**;

  void check_size() const { check_elements(call_, built_.collective->count); }
  // "send of 100 f32 to rank 1 with tag 0"
  void name_message(std::size_t count, DType dtype, std::string_view direction) {
    check_elements(call_, count);
    built_.text = fmt::format("{} of {} {} {} rank {} with tag {}", call_, count, to_string(dtype), direction,
                              operation_.peer, operation_.tag);
  }

  // What MPI does in place here. Two buffers would leave the result in the wrong one.
  void check_in_place() const {
    check_data(call_, "buffer", output_);
    if (input_.data == output_.data && input_.count == output_.count && input_.dtype == output_.dtype) return;
    throw Error({StatusCode::invalid_argument, fmt::format("{}: input and output must be the same buffer", call_)});
  }
  void check_root() const { check_rank(call_, "root", operation_.peer, context_.size); }
  // Of an operation that has as many elements on one side as all ranks have on the other.
  void check_ratio(std::string_view large_name, std::size_t large, std::size_t small, std::string_view why) const {
    check_same_type(call_, input_, output_);
    check_count(call_, large_name, large, size_ * small, why);
  }

  // The input that MPI may read while it writes the output: a copy if the two overlap, which MPI forbids.
  const void* separate_input() {
    const auto* const in = static_cast<const std::byte*>(input_.data);
    const auto* const out = static_cast<const std::byte*>(output_.data);
    const bool overlap = input_.bytes() > 0 && in < out + output_.bytes() && out < in + input_.bytes();
    if (!overlap) return some(const_cast<void*>(input_.data));
    auto copy = std::make_shared<std::pair<std::vector<std::byte>, std::shared_ptr<void>>>(
        std::vector<std::byte>(in, in + input_.bytes()), std::move(built_.memory));
    const void* const data = copy->first.data();
    built_.memory = std::move(copy);
    return data;
  }

  // What MPI itself would round more than once.
  bool is_half_reduction() const { return rounds_once(input_.dtype, operation_.op); }
  HalfReduction half_reduction() {
    return {mpi_, comm_, context_.rank, context_.size, operation_.op, std::move(built_.memory)};
  }

  void barrier() {
    built_.start = [mpi = mpi_, comm = comm_](Request request) { return mpi->barrier(comm, request); };
  }

  void all_reduce() {
    check_in_place();
    check_reduce_op(call_, output_.dtype, operation_.op);
    check_size();
    if (is_half_reduction()) return half_reduction().all_reduce(built_, output_);
    built_.start = [mpi = mpi_, comm = comm_, data = output_, op = operation_.op](Request request) {
      return mpi->all_reduce(comm, some(data.data), data.count, static_cast<int>(data.dtype), mpi_op(op), request);
    };
    built_.finish = divide_after(operation_.op, output_, context_.size);
  }

  void reduce() {
    check_root();
    check_in_place();
    check_reduce_op(call_, output_.dtype, operation_.op);
    check_size();
    if (is_half_reduction()) return half_reduction().reduce(built_, output_, operation_.peer);
    built_.start = [mpi = mpi_, comm = comm_, data = output_, op = operation_.op,
                    root = operation_.peer](Request request) {
      return mpi->reduce(comm, some(data.data), data.count, static_cast<int>(data.dtype), mpi_op(op), root, request);
    };
    if (is_root_) built_.finish = divide_after(operation_.op, output_, context_.size);
  }

  void broadcast() {
    check_root();
    check_in_place();
    check_size();
    built_.start = [mpi = mpi_, comm = comm_, data = output_, root = operation_.peer](Request request) {
      return mpi->broadcast(comm, some(data.data), data.count, static_cast<int>(data.dtype), root, request);
    };
  }

  void all_gather() {
    check_ratio("output", output_.count, input_.count, "size of the group times the input's");
    check_size();
    built_.start = [mpi = mpi_, comm = comm_, from = separate_input(), to = output_,
                    count = input_.count](Request request) {
      return mpi->all_gather(comm, from, some(to.data), count, static_cast<int>(to.dtype), request);
    };
  }

  void all_gather_v() {
    const auto counts = operation_.counts;
    check_count(call_, "list of counts", counts.size(), size_, "one for each rank");
    check_same_type(call_, input_, output_);
    check_count(call_, "input", input_.count, counts[static_cast<std::size_t>(context_.rank)],
                "as in the list of counts");
    const std::size_t total = std::accumulate(counts.begin(), counts.end(), std::size_t{0});
    check_count(call_, "output", output_.count, total, "the sum of the counts");
    check_size();
    built_.start = [mpi = mpi_, comm = comm_, from = separate_input(), to = output_,
                    list = std::vector<std::size_t>(counts.begin(), counts.end())](Request request) {
      return mpi->all_gather_v(comm, from, some(to.data), list.data(), static_cast<int>(to.dtype), request);
    };
  }

  void reduce_scatter() {
    check_reduce_op(call_, input_.dtype, operation_.op);
    check_ratio("input", input_.count, output_.count, "size of the group times the output's");
    check_elements(call_, input_.count);
    check_size();
    if (is_half_reduction()) return half_reduction().reduce_scatter(built_, input_, output_);
    built_.start = [mpi = mpi_, comm = comm_, from = separate_input(), to = output_,
                    op = operation_.op](Request request) {
      return mpi->reduce_scatter(comm, from, some(to.data), to.count, static_cast<int>(to.dtype), mpi_op(op), request);
    };
    built_.finish = divide_after(operation_.op, output_, context_.size);
  }

  void gather() {
    check_root();
    if (is_root_) check_ratio("output", output_.count, input_.count, "size of the group times the input's");
    check_size();
    built_.start = [mpi = mpi_, comm = comm_, from = separate_input(), in = input_, to = output_.data,
                    root = operation_.peer](Request request) {
      return mpi->gather(comm, from, some(to), in.count, static_cast<int>(in.dtype), root, request);
    };
  }

  void scatter() {
    check_root();
    if (is_root_) check_ratio("input", input_.count, output_.count, "size of the group times the output's");
    check_size();
    built_.start = [mpi = mpi_, comm = comm_, from = separate_input(), to = output_,
                    root = operation_.peer](Request request) {
      return mpi->scatter(comm, from, some(to.data), to.count, static_cast<int>(to.dtype), root, request);
    };
  }

  void all_to_all() {
    check_same_type(call_, input_, output_);
    check_count(call_, "output", output_.count, input_.count, "as many as in the input");
    const std::size_t part = input_.count / size_;
    check_count(call_, "input", input_.count, size_ * part, "a multiple of the size of the group");
    check_size();
    built_.start = [mpi = mpi_, comm = comm_, from = separate_input(), to = output_, part](Request request) {
      return mpi->all_to_all(comm, from, some(to.data), part, static_cast<int>(to.dtype), request);
    };
  }

  void check_message(std::string_view what) const {
    check_rank(call_, what, operation_.peer, context_.size);
    if (operation_.tag >= 0 && operation_.tag <= context_.highest_tag) return;
    throw Error({StatusCode::invalid_argument, fmt::format("{}: the tag is {}, but {} takes tags from 0 to {}", call_,
                                                           operation_.tag, context_.library, context_.highest_tag)});
  }

  void send() {
    check_message("destination");
    name_message(input_.count, input_.dtype, "to");
    built_.start = [mpi = mpi_, comm = comm_, data = input_, to = operation_.peer,
                    tag = operation_.tag](Request request) {
      return mpi->send(comm, some(const_cast<void*>(data.data)), data.count, static_cast<int>(data.dtype), to, tag,
                       request);
    };
  }

  void recv() {
    check_message("source");
    name_message(output_.count, output_.dtype, "from");
    built_.start = [mpi = mpi_, comm = comm_, data = output_, from = operation_.peer,
                    tag = operation_.tag](Request request) {
      return mpi->recv(comm, some(data.data), data.count, static_cast<int>(data.dtype), from, tag, request);
    };
    built_.finish = [count = output_.count](std::size_t received) {
      if (received == count) return Status();
      return Status(StatusCode::mismatch,
                    fmt::format("{} elements arrived: both sides must give the same number", received));
    };
  }

  const std::string_view call_;
  const lockstep::Operation& operation_;
  const ConstBuffer input_;
  const Buffer output_;
  const OperationContext& context_;
  const lockstep_mpi_plugin* const mpi_;
  lockstep_mpi_comm* const comm_;
  const std::size_t size_;
  const bool is_root_;
  ChannelOperation built_ = {};
};

}  // namespace

ChannelOperation build_operation(const lockstep::Operation& operation, const OperationContext& context,
                                 std::shared_ptr<void> memory) {
  return OperationBuilder(operation, context, std::move(memory)).build();
}

}  // namespace lockstep::mpi
