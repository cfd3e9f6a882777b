// Reduction to a root, for few bytes.
//
// Every rank sends its input to the root; the root reduces them all in rank order, in one pass. One
// message latency, where the direct reduction needs two; but the root receives n-1 whole buffers,
// so larger ones are reduced by stream_direct.
#include <array>

#include "collectives/kernels/kernels.h"
#include "collectives/stream/algorithms.h"

namespace lockstep {

Status stream_reduce_small(const StreamPart& part, StreamTransport& streams, WaitScope& scope) {
  begin_part(streams, part, StreamAlgorithm::small);
  const std::size_t n = part.size();
  const std::size_t bytes = part.bytes();
  if (part.me != part.root) {
    streams.open_send(part.rank_at(part.root));
    streams.send(part.rank_at(part.root), part.input, bytes);
    return streams.finish(scope);
  }
  const auto inputs = streams.pointers(n);
  std::byte* room = streams.scratch(n * bytes).data();
  for (std::size_t peer = 0; peer < n; ++peer) {
    inputs[peer] = peer == part.me ? part.input : room + peer * bytes;
    if (peer == part.me) continue;
    streams.open_receive(part.rank_at(peer));
    streams.receive(part.rank_at(peer), room + peer * bytes, bytes);
  }
  LOCKSTEP_RETURN_IF_ERROR(streams.finish(scope));
  if (part.count == 0) return {};
  std::byte* output = part.output;
  reduce(part.descriptor.dtype, part.descriptor.op, inputs, std::span(&output, 1), part.count, part.divisor);
  return {};
}

}  // namespace lockstep
