// Reduction to a root, for few bytes.
//
// Every rank sends its input to the root; the root reduces them all in rank order, in one pass. One
// message latency instead of the two of the direct reduction; but the root receives n-1 whole buffers,
// so larger ones are reduced by stream_direct.
#include <array>

#include "collectives/kernels/kernels.h"
#include "collectives/stream/algorithms.h"

namespace lockstep {

Status stream_reduce_small(const StreamTask& task, StreamTransport& streams, WaitScope& scope) {
  begin_task(streams, task, StreamAlgorithm::small);
  const std::size_t n = task.size();
  const std::size_t bytes = task.bytes();
  if (task.me != task.root) {
    streams.open_send(task.rank_at(task.root));
    streams.send(task.rank_at(task.root), task.input, bytes);
    return streams.finish(scope);
  }
  const auto inputs = streams.pointers(n);
  std::byte* gathered = streams.scratch(n * bytes).data();
  for (std::size_t peer = 0; peer < n; ++peer) {
    inputs[peer] = peer == task.me ? task.input : gathered + peer * bytes;
    if (peer == task.me) continue;
    streams.open_receive(task.rank_at(peer));
    streams.receive(task.rank_at(peer), gathered + peer * bytes, bytes);
  }
  LOCKSTEP_RETURN_IF_ERROR(streams.finish(scope));
  if (task.count == 0) return {};
  std::byte* output = task.output;
  reduce(task.descriptor.dtype, task.descriptor.op, inputs, std::span(&output, 1), task.count, task.divisor);
  return {};
}

}  // namespace lockstep
