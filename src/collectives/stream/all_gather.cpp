// Ring all-gather, of equal or unequal chunks.
//
// Rank r's chunk travels around the ring: every rank sends its own chunk to its right neighbour, and
// then forwards all that comes from the left, except what has reached the last rank. As two
// streams: chunks r, r-1, r-2, ... go out on the right, chunks r-1, r-2, ..., r-(n-1) come in on the
// left (all modulo n), each straight to its place in the output. Bytes are forwarded as they arrive, so
// unequal chunks cost nothing extra: the time is that of the sum of all chunks but one's own, once over a link.
#include <algorithm>
#include <cstring>

#include "collectives/stream/algorithms.h"

namespace lockstep {

Status stream_all_gather_ring(const StreamTask& task, StreamTransport& streams, WaitScope& scope) {
  const std::size_t n = task.size();
  const ByteRange own = gathered_chunk(task, task.me);
  if (own.size > 0) std::memmove(task.output + own.begin, task.input, own.size);
  if (n == 1) return {};

  begin_task(streams, task, StreamAlgorithm::ring);
  const int left = task.left();
  const int right = task.right();
  streams.open_send(right);
  streams.open_receive(left);
  streams.send(right, task.output + own.begin, own.size);
  const auto incoming = [&](std::size_t step) { return gathered_chunk(task, (task.me + n - 1 - step) % n); };
  for (std::size_t step = 0; step + 1 < n; ++step) {
    streams.receive(left, task.output + incoming(step).begin, incoming(step).size);
  }

  std::size_t step = 0;  // whose chunk is being forwarded
  std::size_t offset = 0;
  std::size_t position = 0;
  while (!(step + 2 >= n && streams.idle())) {
    LOCKSTEP_RETURN_IF_ERROR(streams.advance(scope));
    for (; step + 2 < n; ++step, offset = 0) {
      const ByteRange whole = incoming(step);
      const std::size_t arrived = std::min(streams.received(left) - position, whole.size - offset);
      streams.send(right, task.output + whole.begin + offset, arrived);
      offset += arrived;
      position += arrived;
      if (offset < whole.size) break;
    }
  }
  return {};
}

}  // namespace lockstep
