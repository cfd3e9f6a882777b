// The operations of an MpiCommunicator: checks, then the channel.
#include <fmt/format.h>

#include <climits>
#include <cstring>
#include <numeric>

#include "collectives/kernels/kernels.h"
#include "communicator/call_checks.h"
#include "mpi/half_reduction.h"
#include "mpi/mpi_communicator.h"

namespace lockstep::mpi {
namespace {

std::size_t times(int size, std::size_t count) { return static_cast<std::size_t>(size) * count; }

void check_elements(const char* call, std::size_t count) {
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
const void* some(const void* data) { return some(const_cast<void*>(data)); }

// An input that MPI may read while it writes the output: a copy where the two overlap, which MPI forbids.
struct Input {
  const void* data = nullptr;
  std::shared_ptr<void> memory;
};
Input apart(ConstBuffer input, ConstBuffer output, std::shared_ptr<void> memory) {
  const auto* const in = static_cast<const std::byte*>(input.data);
  const auto* const out = static_cast<const std::byte*>(output.data);
  const bool overlap = input.bytes() > 0 && in < out + output.bytes() && out < in + input.bytes();
  if (!overlap) return {some(input.data), std::move(memory)};
  auto copy = std::make_shared<std::pair<std::vector<std::byte>, std::shared_ptr<void>>>(
      std::vector<std::byte>(in, in + input.bytes()), std::move(memory));
  return {copy->first.data(), copy};
}

std::string text_of(const char* call, ReduceOp op, std::size_t count, DType dtype) {
  return fmt::format("{}({}) of {} {}", call, to_string(op), count, to_string(dtype));
}
std::string text_of(const char* call, std::size_t count, DType dtype) {
  return fmt::format("{} of {} {}", call, count, to_string(dtype));
}

}  // namespace

Work MpiCommunicator::all_reduce(Buffer data, const ReduceOptions& options, Memory memory) {
  check_data("all_reduce", "buffer", data);
  check_reduce_op("all_reduce", data.dtype, options.op);
  check_elements("all_reduce", data.count);
  const std::string text = text_of("all_reduce", options.op, data.count, data.dtype);
  if (rounds_once(data.dtype, options.op)) {
    Operation operation = make_operation(text, options.timeout);
    half_reduction(options.op, std::move(memory)).all_reduce(operation, data);
    return state_->channel->submit(std::move(operation));
  }
  return submit(
      text, options.timeout, std::move(memory),
      [=, mpi = &state_->job->engine->mpi(), comm = state_->comm](lockstep_mpi_request** request) {
        return mpi->all_reduce(comm, some(data.data), data.count, static_cast<int>(data.dtype), mpi_op(options.op),
                               request);
      },
      divide_after(options.op, data, size()));
}

Work MpiCommunicator::reduce(Buffer data, int root, const ReduceOptions& options, Memory memory) {
  check_rank("reduce", "root", root, size());
  check_data("reduce", "buffer", data);
  check_reduce_op("reduce", data.dtype, options.op);
  check_elements("reduce", data.count);
  const std::string text = fmt::format("{} to rank {}", text_of("reduce", options.op, data.count, data.dtype), root);
  if (rounds_once(data.dtype, options.op)) {
    Operation operation = make_operation(text, options.timeout);
    half_reduction(options.op, std::move(memory)).reduce(operation, data, root);
    return state_->channel->submit(std::move(operation));
  }
  return submit(
      text, options.timeout, std::move(memory),
      [=, mpi = &state_->job->engine->mpi(), comm = state_->comm](lockstep_mpi_request** request) {
        return mpi->reduce(comm, some(data.data), data.count, static_cast<int>(data.dtype), mpi_op(options.op), root,
                           request);
      },
      rank() == root ? divide_after(options.op, data, size()) : nullptr);
}

Work MpiCommunicator::broadcast(Buffer data, int root, const CallOptions& options, Memory memory) {
  check_rank("broadcast", "root", root, size());
  check_data("broadcast", "buffer", data);
  check_elements("broadcast", data.count);
  return submit(fmt::format("{} from rank {}", text_of("broadcast", data.count, data.dtype), root), options.timeout,
                std::move(memory),
                [=, mpi = &state_->job->engine->mpi(), comm = state_->comm](lockstep_mpi_request** request) {
                  return mpi->broadcast(comm, some(data.data), data.count, static_cast<int>(data.dtype), root, request);
                });
}

Work MpiCommunicator::all_gather(ConstBuffer input, Buffer output, const CallOptions& options, Memory memory) {
  check_same_type("all_gather", input, output);
  check_count("all_gather", "output", output.count, times(size(), input.count), "size of the group times the input's");
  check_elements("all_gather", input.count);
  const Input from = apart(input, output, std::move(memory));
  return submit(
      text_of("all_gather", input.count, input.dtype), options.timeout, from.memory,
      [=, data = from.data, mpi = &state_->job->engine->mpi(), comm = state_->comm](lockstep_mpi_request** request) {
        return mpi->all_gather(comm, data, some(output.data), input.count, static_cast<int>(input.dtype), request);
      });
}

Work MpiCommunicator::all_gather_v(ConstBuffer input, Buffer output, std::span<const std::size_t> counts,
                                   const CallOptions& options, Memory memory) {
  constexpr auto kCall = "all_gather_v";
  check_count(kCall, "list of counts", counts.size(), times(size(), 1), "one for each rank");
  check_same_type(kCall, input, output);
  check_count(kCall, "input", input.count, counts[static_cast<std::size_t>(rank())], "as the list of counts says");
  const std::size_t total = std::accumulate(counts.begin(), counts.end(), std::size_t{0});
  check_count(kCall, "output", output.count, total, "the sum of the counts");
  check_elements(kCall, total);
  const Input from = apart(input, output, std::move(memory));
  return submit(text_of(kCall, total, input.dtype), options.timeout, from.memory,
                [=, list = std::vector<std::size_t>(counts.begin(), counts.end()), data = from.data,
                 mpi = &state_->job->engine->mpi(), comm = state_->comm](lockstep_mpi_request** request) {
                  return mpi->all_gather_v(comm, data, some(output.data), list.data(), static_cast<int>(input.dtype),
                                           request);
                });
}

Work MpiCommunicator::reduce_scatter(ConstBuffer input, Buffer output, const ReduceOptions& options, Memory memory) {
  check_same_type("reduce_scatter", input, output);
  check_reduce_op("reduce_scatter", input.dtype, options.op);
  check_count("reduce_scatter", "input", input.count, times(size(), output.count),
              "size of the group times the output's");
  check_elements("reduce_scatter", input.count);
  const std::string text = text_of("reduce_scatter", options.op, output.count, input.dtype);
  if (rounds_once(input.dtype, options.op)) {
    Operation operation = make_operation(text, options.timeout);
    half_reduction(options.op, std::move(memory)).reduce_scatter(operation, input, output);
    return state_->channel->submit(std::move(operation));
  }
  const Input from = apart(input, output, std::move(memory));
  return submit(
      text, options.timeout, from.memory,
      [=, data = from.data, mpi = &state_->job->engine->mpi(), comm = state_->comm](lockstep_mpi_request** request) {
        return mpi->reduce_scatter(comm, data, some(output.data), output.count, static_cast<int>(input.dtype),
                                   mpi_op(options.op), request);
      },
      divide_after(options.op, output, size()));
}

Work MpiCommunicator::gather(ConstBuffer input, Buffer output, int root, const CallOptions& options, Memory memory) {
  check_rank("gather", "root", root, size());
  check_elements("gather", input.count);
  if (rank() == root) {
    check_same_type("gather", input, output);
    check_count("gather", "output", output.count, times(size(), input.count), "size of the group times the input's");
  }
  const Input from = apart(input, output, std::move(memory));
  return submit(
      fmt::format("{} to rank {}", text_of("gather", input.count, input.dtype), root), options.timeout, from.memory,
      [=, data = from.data, mpi = &state_->job->engine->mpi(), comm = state_->comm](lockstep_mpi_request** request) {
        return mpi->gather(comm, data, some(output.data), input.count, static_cast<int>(input.dtype), root, request);
      });
}

Work MpiCommunicator::scatter(ConstBuffer input, Buffer output, int root, const CallOptions& options, Memory memory) {
  check_rank("scatter", "root", root, size());
  check_elements("scatter", output.count);
  if (rank() == root) {
    check_same_type("scatter", input, output);
    check_count("scatter", "input", input.count, times(size(), output.count), "size of the group times the output's");
  }
  const Input from = apart(input, output, std::move(memory));
  return submit(
      fmt::format("{} from rank {}", text_of("scatter", output.count, output.dtype), root), options.timeout,
      from.memory,
      [=, data = from.data, mpi = &state_->job->engine->mpi(), comm = state_->comm](lockstep_mpi_request** request) {
        return mpi->scatter(comm, data, some(output.data), output.count, static_cast<int>(output.dtype), root, request);
      });
}

Work MpiCommunicator::all_to_all(ConstBuffer input, Buffer output, const CallOptions& options, Memory memory) {
  check_same_type("all_to_all", input, output);
  check_count("all_to_all", "output", output.count, input.count, "as many as in the input");
  const std::size_t part = input.count / static_cast<std::size_t>(size());
  check_count("all_to_all", "input", input.count, times(size(), part), "a multiple of the size of the group");
  check_elements("all_to_all", part);
  const Input from = apart(input, output, std::move(memory));
  return submit(
      text_of("all_to_all", part, input.dtype), options.timeout, from.memory,
      [=, data = from.data, mpi = &state_->job->engine->mpi(), comm = state_->comm](lockstep_mpi_request** request) {
        return mpi->all_to_all(comm, data, some(output.data), part, static_cast<int>(input.dtype), request);
      });
}

Work MpiCommunicator::barrier(const CallOptions& options) {
  return submit("barrier", options.timeout, {},
                [mpi = &state_->job->engine->mpi(), comm = state_->comm](lockstep_mpi_request** request) {
                  return mpi->barrier(comm, request);
                });
}

void MpiCommunicator::check_message(const char* call, const char* what, int peer, int tag, std::size_t count) const {
  check_rank(call, what, peer, size());
  check_elements(call, count);
  const int highest = state_->job->engine->world().highest_tag;
  if (tag >= 0 && tag <= highest) return;
  throw Error({StatusCode::invalid_argument,
               fmt::format("{}: the tag is {}, but {} takes tags from 0 to {}", call, tag, library(), highest)});
}

Work MpiCommunicator::send(ConstBuffer data, int destination, int tag, const CallOptions& options, Memory memory) {
  check_message("send", "destination", destination, tag, data.count);
  return submit(
      fmt::format("{} to rank {} with tag {}", text_of("send", data.count, data.dtype), destination, tag),
      options.timeout, std::move(memory),
      [=, mpi = &state_->job->engine->mpi(), comm = state_->comm](lockstep_mpi_request** request) {
        return mpi->send(comm, some(data.data), data.count, static_cast<int>(data.dtype), destination, tag, request);
      },
      {}, false);
}

Work MpiCommunicator::recv(Buffer data, int source, int tag, const CallOptions& options, Memory memory) {
  check_message("recv", "source", source, tag, data.count);
  return submit(
      fmt::format("{} from rank {} with tag {}", text_of("recv", data.count, data.dtype), source, tag), options.timeout,
      std::move(memory),
      [=, mpi = &state_->job->engine->mpi(), comm = state_->comm](lockstep_mpi_request** request) {
        return mpi->recv(comm, some(data.data), data.count, static_cast<int>(data.dtype), source, tag, request);
      },
      [count = data.count](std::size_t received) {
        if (received == count) return Status();
        return Status(StatusCode::mismatch,
                      fmt::format("{} elements came: both sides must name the same number", received));
      },
      false);
}

}  // namespace lockstep::mpi
