// all_reduce for several ranks on several hosts: every byte crosses the network once per host, not
// once per rank.
//
// Let K be the smallest number of ranks on a host. The elements are divided into K slices; on every
// host local rank l < K owns slice l. Slice by slice, in pieces that fit the staging rooms:
//   1. on the host, the owner reduces its piece over all local inputs, in rank order;
//   2. between the hosts, the owners of slice l, one per host, all_reduce their partial results
//      (K such exchanges run side by side);
//   3. on the host, the result goes from the owner to all local ranks.
// Where all buffers of a host lie in registered memory, steps 1 and 3 work in place; otherwise the
// pieces pass through the staging rooms. Hosts need not agree about that: the network sees the same
// pieces either way.
//
// Each element is reduced over a host's ranks in one place and over the hosts in one place: the
// same bits everywhere. Partial results travel in the buffer's own type, which 16-bit floats cannot
// bear: they are rounded once, at the end, or not here.
#pragma once

#include "collectives/context.h"

namespace lockstep {

// Only where hierarchical_can_carry.
Status hierarchical_all_reduce(const CollectiveCall& call, CollectiveContext& context);
inline bool hierarchical_can_carry(DType dtype) { return dtype != DType::f16 && dtype != DType::bf16; }

}  // namespace lockstep
