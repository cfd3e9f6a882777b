#include "collectives/stream/part.h"

#include <array>
#include <numeric>

#include "collectives/kernels/kernels.h"
#include "collectives/stream/algorithms.h"

namespace lockstep {

StreamPart whole_group(const CollectiveCall& call, int rank, std::span<const int> all_ranks) {
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

ByteRange gathered_part(const StreamPart& part, std::size_t index) {
  if (part.descriptor.kind != OperationKind::all_gather_v) return {index * part.bytes(), part.bytes()};
  const auto before = part.counts.first(index);
  const std::size_t begin = std::accumulate(before.begin(), before.end(), std::size_t{0});
  return {begin * part.element_bytes(), part.counts[index] * part.element_bytes()};
}

void begin_part(StreamTransport& streams, const StreamPart& part, StreamAlgorithm algorithm) {
  streams.begin(
      format_stream_header(
          {.algorithm = algorithm, .slice = part.slice, .slices = part.slices, .descriptor = part.descriptor}),
      explain_header_difference);
}

void reduce_two(const StreamPart& part, const std::byte* first, const std::byte* second, std::byte* dst,
                std::size_t bytes, int divisor) {
  const std::array srcs{first, second};
  const std::array dsts{dst};
  reduce(part.descriptor.dtype, part.descriptor.op, srcs, dsts, bytes / part.element_bytes(), divisor);
}

void reduce_alone(const StreamPart& part) {
  if (part.output == nullptr || part.count == 0) return;
  const std::array srcs{part.input};
  const std::array dsts{part.output};
  reduce(part.descriptor.dtype, part.descriptor.op, srcs, dsts, part.count, part.divisor);
}

Status run_stream(StreamFunction algorithm, const CollectiveCall& call, CollectiveContext& context) {
  if (context.streams == nullptr) {
    return Status(StatusCode::internal, "a stream algorithm was chosen for a group that is on one host");
  }
  return algorithm(whole_group(call, context.topology.rank, context.streams->all_ranks()), *context.streams,
                   context.scope);
}

}  // namespace lockstep
