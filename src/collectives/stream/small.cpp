// The latency algorithm: everybody gets everybody's input.
//
// For a few bytes the time is that of the messages, not of what is in them. So every rank gets the
// inputs of all ranks, whole, and does the rest alone: all_reduce reduces them in rank order,
// all_gather puts them in their places, and a barrier has nothing to do, because a rank that has
// heard from all knows that all have come.
//
// Few ranks (up to kDirectRanks) send their input to every other rank at once: one message latency,
// n-1 messages per rank. Where ranks share processors, the messages count and not the latency: only up to three
// ranks, for whom it makes no difference, do so.
//
// More ranks use Bruck's algorithm, log2(n) rounded up rounds. Rank r keeps the inputs in the order
// r, r+1, r+2, ... (modulo n), own one first. In round k it knows 2^k of them and sends them (or as
// many as are missing there) to rank r-2^k, while the next 2^k come from rank r+2^k: each round
// doubles what is known. No rank is sent to twice, so each round is the one message of its stream.
//
// Same bits everywhere: every rank reduces the same inputs in rank order in one pass.
#include <algorithm>
#include <cstring>

#include "collectives/kernels/kernels.h"
#include "collectives/stream/algorithms.h"

namespace lockstep {
namespace {

constexpr std::size_t kDirectRanks = 8;
constexpr std::size_t kDirectRanksCrowded = 3;

bool reduces(const StreamPart& part) { return part.descriptor.kind == OperationKind::all_reduce; }

void reduce_inputs(const StreamPart& part, std::span<const std::byte* const> inputs) {
  if (part.count == 0) return;
  std::byte* output = part.output;
  reduce(part.descriptor.dtype, part.descriptor.op, inputs, std::span(&output, 1), part.count, part.divisor);
}

// memmove: in place the own input is already there.
void place(const StreamPart& part, std::size_t index, const std::byte* input) {
  if (part.bytes() > 0) std::memmove(part.output + index * part.bytes(), input, part.bytes());
}

Status small_direct(const StreamPart& part, StreamTransport& streams, WaitScope& scope) {
  const std::size_t n = part.size();
  const std::size_t bytes = part.bytes();
  const auto inputs = streams.pointers(n);
  std::byte* room = reduces(part) ? streams.scratch(n * bytes).data() : part.output;
  for (std::size_t distance = 1; distance < n; ++distance) {
    const int rank = part.right(distance);
    streams.open_send(rank);
    streams.send(rank, part.input, bytes);
  }
  for (std::size_t peer = 0; peer < n; ++peer) {
    inputs[peer] = peer == part.me ? part.input : room + peer * bytes;
    if (peer == part.me) continue;
    streams.open_receive(part.rank_at(peer));
    streams.receive(part.rank_at(peer), room + peer * bytes, bytes);
  }
  LOCKSTEP_RETURN_IF_ERROR(streams.finish(scope));
  if (reduces(part)) {
    reduce_inputs(part, inputs);
  } else {
    place(part, part.me, part.input);
  }
  return {};
}

Status small_bruck(const StreamPart& part, StreamTransport& streams, WaitScope& scope) {
  const std::size_t n = part.size();
  const std::size_t bytes = part.bytes();
  std::byte* known = streams.scratch(n * bytes).data();
  if (bytes > 0) std::memcpy(known, part.input, bytes);
  for (std::size_t distance = 1; distance < n; distance *= 2) {
    const std::size_t inputs = std::min(distance, n - distance);
    const int to = part.left(distance);
    const int from = part.right(distance);
    streams.open_send(to);
    streams.open_receive(from);
    streams.send(to, known, inputs * bytes);
    streams.receive(from, known + distance * bytes, inputs * bytes);
    LOCKSTEP_RETURN_IF_ERROR(streams.finish(scope));
  }
  const auto inputs = streams.pointers(n);
  for (std::size_t i = 0; i < n; ++i) inputs[(part.me + i) % n] = known + i * bytes;
  if (reduces(part)) {
    reduce_inputs(part, inputs);
  } else {
    for (std::size_t i = 0; i < n; ++i) place(part, i, inputs[i]);
  }
  return {};
}

Status small(const StreamPart& part, std::size_t direct_ranks, StreamTransport& streams, WaitScope& scope) {
  begin_part(streams, part, StreamAlgorithm::small);
  return part.size() <= direct_ranks ? small_direct(part, streams, scope) : small_bruck(part, streams, scope);
}

}  // namespace

Status stream_small(const StreamPart& part, StreamTransport& streams, WaitScope& scope) {
  return small(part, kDirectRanks, streams, scope);
}

Status stream_small_oversubscribed(const StreamPart& part, StreamTransport& streams, WaitScope& scope) {
  return small(part, kDirectRanksCrowded, streams, scope);
}

}  // namespace lockstep
