// all_reduce and barrier for several ranks on several hosts: every byte crosses the network once per host, not
// once per rank.
//
// A few bytes (up to kHierarchicalSmall) travel inside the announcements of a host. Its first rank reduces them, in
// rank order, runs the latency algorithm (stream/small.cpp) with the first ranks of the other hosts, and shares the
// result: one announcement, the rounds between the hosts, one synchronisation. A barrier is the same without bytes.
//
// More bytes:
// Let K be the smallest number of ranks on a host. The elements are divided into K chunks; on every
// host local rank l < K owns chunk l. For each segment of the chunks, small enough for the staging memory:
//   1. on the host, the owner reduces its segment over all local inputs, in rank order;
//   2. between the hosts, the owners of chunk l, one per host, all_reduce their partial results
//      (K such exchanges run side by side);
//   3. on the host, the result goes from the owner to all local ranks.
// If all buffers of a host are in registered memory, steps 1 and 3 work in place; otherwise the
// segments pass through the staging memory. Hosts need not agree about that: the network carries the same
// segments either way.
//
// Each element is reduced over a host's ranks in one place and over the hosts in one place: the
// same bits everywhere. Partial results travel in the buffer's own type. That would round 16-bit
// floats more than once, so they use another algorithm.
#pragma once

#include "collectives/context.h"

namespace lockstep {

inline constexpr std::size_t kHierarchicalSmall = std::size_t{8} << 10;

// Only for types for which hierarchical_can_carry() is true.
Status hierarchical_all_reduce(const CollectiveCall& call, CollectiveContext& context);
Status hierarchical_barrier(const CollectiveCall& call, CollectiveContext& context);
inline bool hierarchical_can_carry(DType dtype) { return dtype != DType::f16 && dtype != DType::bf16; }

}  // namespace lockstep
