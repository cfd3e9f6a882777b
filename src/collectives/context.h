// The arguments of every collective algorithm: the call, and the transports that it may use.
#pragma once

#include <cstddef>
#include <span>

#include "collectives/descriptor.h"
#include "transport/host_transport.h"
#include "transport/stream/stream_transport.h"
#include "transport/topology.h"
#include "transport/wait_scope.h"

namespace lockstep {

// One rank's side of one operation. Input and output are either equal (in place) or disjoint.
// all_gather in place: input is at its place inside output; reduce_scatter: output is at its place inside input.
struct CollectiveCall {
  OpDescriptor descriptor;
  const std::byte* input = nullptr;     // null if this rank has none (e.g. scatter, not root)
  std::byte* output = nullptr;          // null if this rank has none (e.g. reduce, not root)
  std::span<const std::size_t> counts;  // all_gather_v: elements of each rank

  std::size_t element_bytes() const { return element_size(descriptor.dtype); }
  std::size_t count() const { return descriptor.count; }
  // all_gather_v only.
  std::size_t count_of(int rank) const { return counts[static_cast<std::size_t>(rank)]; }
};

// Lives for one operation. Only the thread that runs the operation uses it.
struct CollectiveContext {
  const Topology& topology;
  HostTransport& host;
  StreamTransport* streams;  // null when the whole group is on one host
  WaitScope& scope;
};

}  // namespace lockstep
