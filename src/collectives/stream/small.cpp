// The latency algorithm: every rank receives every rank's input.
//
// For a few bytes the number of messages decides the time, not their size. So every rank gets the
// inputs of all ranks, whole, and does the rest alone: all_reduce reduces them in rank order,
// all_gather copies them to their places, and a barrier has nothing to do, because a message from
// every rank proves that all have reached it.
//
// Few ranks (up to kDirectRanks) send their input to every other rank at once: one message latency,
// n-1 messages per rank. On oversubscribed machines the number of messages counts and not the latency: only up to
// three ranks, for which it makes no difference, do so.
//
// More ranks use Bruck's algorithm, in log2(n) rounds (rounded up). Rank r keeps the inputs in the order
// r, r+1, r+2, ... (modulo n), own one first. In round k it has 2^k of them and sends them (or as
// many as are missing there) to rank r-2^k, while the next 2^k come from rank r+2^k: each round
// doubles what it has. No rank is sent to twice, so each round is the one message of its stream.
//
// Same bits everywhere: every rank reduces the same inputs in rank order in one pass.
#include <algorithm>
#include <cstring>

#include "collectives/kernels/kernels.h"
#include "collectives/stream/algorithms.h"

namespace lockstep {
namespace {

constexpr std::size_t kDirectRanks = 8;
constexpr std::size_t kDirectRanksOversubscribed = 3;

bool reduces(const StreamTask& task) { return task.descriptor.kind == OperationKind::all_reduce; }

void reduce_inputs(const StreamTask& task, std::span<const std::byte* const> inputs) {
  if (task.count == 0) return;
  std::byte* output = task.output;
  reduce(task.descriptor.dtype, task.descriptor.op, inputs, std::span(&output, 1), task.count, task.divisor);
}

// memmove: in place the own input is already there.
void place(const StreamTask& task, std::size_t index, const std::byte* input) {
  if (task.bytes() > 0) std::memmove(task.output + index * task.bytes(), input, task.bytes());
}

Status small_direct(const StreamTask& task, StreamTransport& streams, WaitScope& scope) {
  const std::size_t n = task.size();
  const std::size_t bytes = task.bytes();
  const auto inputs = streams.pointers(n);
  std::byte* gathered = reduces(task) ? streams.scratch(n * bytes).data() : task.output;
  for (std::size_t distance = 1; distance < n; ++distance) {
    const int rank = task.right(distance);
    streams.open_send(rank);
    streams.send(rank, task.input, bytes);
  }
  for (std::size_t peer = 0; peer < n; ++peer) {
    inputs[peer] = peer == task.me ? task.input : gathered + peer * bytes;
    if (peer == task.me) continue;
    streams.open_receive(task.rank_at(peer));
    streams.receive(task.rank_at(peer), gathered + peer * bytes, bytes);
  }
  LOCKSTEP_RETURN_IF_ERROR(streams.finish(scope));
  if (reduces(task)) {
    reduce_inputs(task, inputs);
  } else {
    place(task, task.me, task.input);
  }
  return {};
}

Status small_bruck(const StreamTask& task, StreamTransport& streams, WaitScope& scope) {
  const std::size_t n = task.size();
  const std::size_t bytes = task.bytes();
  std::byte* known = streams.scratch(n * bytes).data();
  if (bytes > 0) std::memcpy(known, task.input, bytes);
  for (std::size_t distance = 1; distance < n; distance *= 2) {
    const std::size_t inputs = std::min(distance, n - distance);
    const int to = task.left(distance);
    const int from = task.right(distance);
    streams.open_send(to);
    streams.open_receive(from);
    streams.send(to, known, inputs * bytes);
    streams.receive(from, known + distance * bytes, inputs * bytes);
    LOCKSTEP_RETURN_IF_ERROR(streams.finish(scope));
  }
  const auto inputs = streams.pointers(n);
  for (std::size_t i = 0; i < n; ++i) inputs[(task.me + i) % n] = known + i * bytes;
  if (reduces(task)) {
    reduce_inputs(task, inputs);
  } else {
    for (std::size_t i = 0; i < n; ++i) place(task, i, inputs[i]);
  }
  return {};
}

Status small(const StreamTask& task, std::size_t direct_ranks, StreamTransport& streams, WaitScope& scope) {
  begin_task(streams, task, StreamAlgorithm::small);
  return task.size() <= direct_ranks ? small_direct(task, streams, scope) : small_bruck(task, streams, scope);
}

}  // namespace

Status stream_small(const StreamTask& task, StreamTransport& streams, WaitScope& scope) {
  return small(task, kDirectRanks, streams, scope);
}

Status stream_small_oversubscribed(const StreamTask& task, StreamTransport& streams, WaitScope& scope) {
  return small(task, kDirectRanksOversubscribed, streams, scope);
}

}  // namespace lockstep
