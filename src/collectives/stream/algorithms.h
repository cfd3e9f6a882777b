// The algorithms over stream sockets. The preface of each source file explains its algorithm.
//
// All of them: any number of ranks from 1, any count from 0, in place or out of place; block until
// done or until the scope or the transport report an error, after which the output is undefined and
// the transport unusable. Results are the same bits on every rank. They do not allocate once the
// transport's memory has grown to the size of the operation.
#pragma once

#include "collectives/context.h"
#include "collectives/stream/task.h"

namespace lockstep {

using StreamFunction = Status (*)(const StreamTask&, StreamTransport&, WaitScope&);

// all_reduce. Only for types for which ring_can_carry() is true: partial results travel in the buffer's own type.
Status stream_ring(const StreamTask& task, StreamTransport& streams, WaitScope& scope);
inline bool ring_can_carry(DType dtype) {
  return dtype == DType::f32 || dtype == DType::f64 || dtype == DType::i32 || dtype == DType::i64;
}
// all_reduce, reduce, reduce_scatter; all dtypes, all inputs of an element in one pass.
Status stream_direct(const StreamTask& task, StreamTransport& streams, WaitScope& scope);
// all_reduce of two ranks; all dtypes.
Status stream_pair(const StreamTask& task, StreamTransport& streams, WaitScope& scope);
// all_reduce, all_gather and barrier of few bytes: n times the input travels to every rank.
Status stream_small(const StreamTask& task, StreamTransport& streams, WaitScope& scope);
// The same with the fewest messages, for ranks that share processors.
Status stream_small_oversubscribed(const StreamTask& task, StreamTransport& streams, WaitScope& scope);
// broadcast: fewest hops; the root sends log2(n) times.
Status stream_broadcast_tree(const StreamTask& task, StreamTransport& streams, WaitScope& scope);
// broadcast: every rank sends once, while it receives.
Status stream_broadcast_chain(const StreamTask& task, StreamTransport& streams, WaitScope& scope);
// all_gather, all_gather_v: every rank talks to its neighbours only.
Status stream_all_gather_ring(const StreamTask& task, StreamTransport& streams, WaitScope& scope);
// reduce of few bytes: all inputs travel to the root.
Status stream_reduce_small(const StreamTask& task, StreamTransport& streams, WaitScope& scope);
// gather, scatter, all_to_all, all_gather, all_gather_v: every pair directly.
Status stream_exchange(const StreamTask& task, StreamTransport& streams, WaitScope& scope);

// The same over the whole group: run_stream(stream_ring, call, context). The group must have
// streams.
Status run_stream(StreamFunction algorithm, const CollectiveCall& call, CollectiveContext& context);

}  // namespace lockstep
