// Broadcast: a tree for few bytes, a chain for many.
//
// Ranks are numbered from the root on: place 0 is the root, place 1 the next rank, modulo n.
//
// Tree (binomial): in round k every rank that has the bytes, those at places below 2^k, sends them
// to the one 2^k places further. After log2(n) rounds, rounded up, all have them. So the parent of a
// place is that place without its highest bit, and its children are that place with one bit more,
// higher than all its own. The root sends log2(n) times: good while latency counts.
//
// Chain: every place sends to the next one. Each rank sends the bytes once, while it receives them,
// so the time is that of the bytes once over a link, plus n-1 latencies.
//
// Both forward bytes as they arrive; no rank waits for the end of the buffer.
#include <algorithm>
#include <bit>

#include "collectives/stream/algorithms.h"

namespace lockstep {
namespace {

std::size_t place_of(const StreamTask& task) { return (task.me + task.size() - task.root) % task.size(); }
int rank_at_place(const StreamTask& task, std::size_t place) { return task.rank_at((task.root + place) % task.size()); }

// Receives from the parent (unless this is the root) and sends on to the children.
// `child(i)` is the place of child i.
template <typename Child>
Status relay(const StreamTask& task, StreamTransport& streams, WaitScope& scope, std::size_t parent,
             std::size_t children, Child child) {
  const bool is_root = task.me == task.root;
  const std::size_t bytes = task.bytes();
  if (!is_root) {
    streams.open_receive(rank_at_place(task, parent));
    streams.receive(rank_at_place(task, parent), task.output, bytes);
  }
  for (std::size_t i = 0; i < children; ++i) streams.open_send(rank_at_place(task, child(i)));
  const std::byte* source = is_root ? task.input : task.output;
  std::size_t forwarded = 0;
  for (;;) {
    const std::size_t arrived = is_root ? bytes : streams.received(rank_at_place(task, parent));
    for (std::size_t i = 0; i < children; ++i) {
      streams.send(rank_at_place(task, child(i)), source + forwarded, arrived - forwarded);
    }
    forwarded = arrived;
    if (forwarded == bytes && streams.idle()) return {};
    LOCKSTEP_RETURN_IF_ERROR(streams.advance(scope));
  }
}

}  // namespace

Status stream_broadcast_tree(const StreamTask& task, StreamTransport& streams, WaitScope& scope) {
  begin_task(streams, task, StreamAlgorithm::tree);
  const std::size_t place = place_of(task);
  const std::size_t first_bit = std::bit_ceil(place + 1);
  std::size_t children = 0;
  while (place + (first_bit << children) < task.size()) ++children;
  return relay(task, streams, scope, place - std::bit_floor(place), children,
               [&](std::size_t i) { return place + (first_bit << i); });
}

Status stream_broadcast_chain(const StreamTask& task, StreamTransport& streams, WaitScope& scope) {
  begin_task(streams, task, StreamAlgorithm::chain);
  const std::size_t place = place_of(task);
  const std::size_t children = place + 1 < task.size() ? 1 : 0;
  return relay(task, streams, scope, place == 0 ? 0 : place - 1, children, [&](std::size_t) { return place + 1; });
}

}  // namespace lockstep
