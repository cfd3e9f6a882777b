// Ring all-gather, of equal or unequal parts.
//
// Rank r's part travels around the ring: every rank sends its own part to its right neighbour, and
// then passes on all that comes from the left, except what has reached the last rank. As two
// streams: parts r, r-1, r-2, ... go out on the right, parts r-1, r-2, ..., r-(n-1) come in on the
// left (all modulo n), each straight to its place in the output. Bytes are sent on as they come, so
// unequal parts do no harm: the time is that of the sum of all parts but one's own, once over a link.
#include <algorithm>
#include <cstring>

#include "collectives/stream/algorithms.h"

namespace lockstep {

Status stream_all_gather_ring(const StreamPart& part, StreamTransport& streams, WaitScope& scope) {
  const std::size_t n = part.size();
  const ByteRange own = gathered_part(part, part.me);
  if (own.size > 0) std::memmove(part.output + own.begin, part.input, own.size);
  if (n == 1) return {};

  begin_part(streams, part, StreamAlgorithm::ring);
  const int left = part.left();
  const int right = part.right();
  streams.open_send(right);
  streams.open_receive(left);
  streams.send(right, part.output + own.begin, own.size);
  const auto incoming = [&](std::size_t step) { return gathered_part(part, (part.me + n - 1 - step) % n); };
  for (std::size_t step = 0; step + 1 < n; ++step) {
    streams.receive(left, part.output + incoming(step).begin, incoming(step).size);
  }

  std::size_t step = 0;  // whose part is being passed on
  std::size_t offset = 0;
  std::size_t position = 0;
  while (!(step + 2 >= n && streams.idle())) {
    LOCKSTEP_RETURN_IF_ERROR(streams.advance(scope));
    for (; step + 2 < n; ++step, offset = 0) {
      const ByteRange whole = incoming(step);
      const std::size_t arrived = std::min(streams.received(left) - position, whole.size - offset);
      streams.send(right, part.output + whole.begin + offset, arrived);
      offset += arrived;
      position += arrived;
      if (offset < whole.size) break;
    }
  }
  return {};
}

}  // namespace lockstep
