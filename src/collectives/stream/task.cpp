#include "collectives/stream/task.h"

#include <array>
#include <numeric>

#include "collectives/kernels/kernels.h"
#include "collectives/stream/algorithms.h"

namespace lockstep {

StreamTask whole_group(const CollectiveCall& call, int rank, std::span<const int> all_ranks) {
  const OpDescriptor& descriptor = call.descriptor;
  return {.descriptor = descriptor,
          .ranks = all_ranks,
          .me = static_cast<std::size_t>(rank),
          .root = static_cast<std::size_t>(std::max(descriptor.root, 0)),
          .input = call.input,
          .output = call.output,
          .count = call.count(),
          .counts = call.counts,
          .divisor = descriptor.op == ReduceOp::avg ? static_cast<int>(all_ranks.size()) : 1};
}

ByteRange gathered_chunk(const StreamTask& task, std::size_t index) {
  if (task.descriptor.kind != OperationKind::all_gather_v) return {index * task.bytes(), task.bytes()};
  const auto before = task.counts.first(index);
  const std::size_t begin = std::accumulate(before.begin(), before.end(), std::size_t{0});
  return {begin * task.element_bytes(), task.counts[index] * task.element_bytes()};
}

void begin_task(StreamTransport& streams, const StreamTask& task, StreamAlgorithm algorithm) {
  streams.begin(
      format_stream_header(
          {.algorithm = algorithm, .chunk = task.chunk, .chunks = task.chunks, .descriptor = task.descriptor}),
      explain_header_difference);
}

void reduce_two(const StreamTask& task, const std::byte* first, const std::byte* second, std::byte* dst,
                std::size_t bytes, int divisor) {
  const std::array srcs{first, second};
  const std::array dsts{dst};
  reduce(task.descriptor.dtype, task.descriptor.op, srcs, dsts, bytes / task.element_bytes(), divisor);
}

void reduce_alone(const StreamTask& task) {
  if (task.output == nullptr || task.count == 0) return;
  const std::array srcs{task.input};
  const std::array dsts{task.output};
  reduce(task.descriptor.dtype, task.descriptor.op, srcs, dsts, task.count, task.divisor);
}

Status run_stream(StreamFunction algorithm, const CollectiveCall& call, CollectiveContext& context) {
  if (context.streams == nullptr) {
    return Status(StatusCode::internal, "a stream algorithm was chosen for a group that is on one host");
  }
  return algorithm(whole_group(call, context.topology.rank, context.streams->all_ranks()), *context.streams,
                   context.scope);
}

}  // namespace lockstep
