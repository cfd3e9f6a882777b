#include "collectives/host/inline.h"

#include <cstring>

#include "base/rank_array.h"
#include "collectives/host/entry.h"
#include "collectives/kernels/kernels.h"

namespace lockstep {
namespace {

// Reduces, in rank order, `count` elements at `offset` bytes into every announced payload.
void reduce_payloads(const CollectiveCall& call, const CollectiveContext& context, std::size_t payload_bytes,
                     std::size_t offset, std::byte* output) {
  const int ranks = context.host.local_size();
  RankArray<const std::byte*> sources(ranks);
  for (int rank = 0; rank < ranks; ++rank) sources[rank] = announced_payload(context, rank, payload_bytes) + offset;
  reduce(call.descriptor.dtype, call.descriptor.op, sources.span(), std::span(&output, 1), call.count(),
         divisor_of(call, context));
}

void copy(std::byte* to, const std::byte* from, std::size_t bytes) {
  if (bytes > 0 && to != from) std::memcpy(to, from, bytes);
}

// After all ranks have announced: computes this rank's output from the announcements.
void finish(const CollectiveCall& call, const CollectiveContext& context, std::size_t payload_bytes) {
  const int ranks = context.host.local_size();
  const int me = context.host.local_rank();
  const int root = call.descriptor.root;
  const std::size_t bytes = call.count() * call.element_bytes();
  const auto payload = [&](int rank) { return announced_payload(context, rank, payload_bytes); };
  const auto chunk_offset = [&](int rank) { return bytes * static_cast<std::size_t>(rank); };

  switch (call.descriptor.kind) {
    case OperationKind::barrier:
    case OperationKind::send:
    case OperationKind::recv: break;
    case OperationKind::all_reduce: reduce_payloads(call, context, payload_bytes, 0, call.output); break;
    case OperationKind::reduce:
      if (me == root) reduce_payloads(call, context, payload_bytes, 0, call.output);
      break;
    case OperationKind::broadcast:
      if (me != root) copy(call.output, payload(root), bytes);
      break;
    case OperationKind::gather:
      if (me != root) break;
      [[fallthrough]];
    case OperationKind::all_gather:
      for (int rank = 0; rank < ranks; ++rank) copy(call.output + chunk_offset(rank), payload(rank), bytes);
      break;
    case OperationKind::all_gather_v: {
      std::byte* to = call.output;
      for (int rank = 0; rank < ranks; ++rank) {
        const std::size_t chunk_bytes = call.count_of(rank) * call.element_bytes();
        copy(to, payload(rank), chunk_bytes);
        to += chunk_bytes;
      }
      break;
    }
    case OperationKind::reduce_scatter:
      reduce_payloads(call, context, payload_bytes, chunk_offset(me), call.output);
      break;
    case OperationKind::scatter: copy(call.output, payload(root) + chunk_offset(me), bytes); break;
    case OperationKind::all_to_all:
      for (int rank = 0; rank < ranks; ++rank) {
        copy(call.output + chunk_offset(rank), payload(rank) + chunk_offset(me), bytes);
      }
      break;
  }
}

// Whether the operation needs this rank's input.
bool provides(const CollectiveCall& call, const CollectiveContext& context) {
  switch (call.descriptor.kind) {
    case OperationKind::barrier: return false;
    case OperationKind::broadcast:
    case OperationKind::scatter: return context.host.local_rank() == call.descriptor.root;
    default: return true;
  }
}

}  // namespace

std::size_t inline_payload_bytes(const CollectiveCall& call, int ranks) {
  const std::size_t bytes = call.count() * call.element_bytes();
  switch (call.descriptor.kind) {
    case OperationKind::barrier: return 0;
    case OperationKind::reduce_scatter:
    case OperationKind::scatter:
    case OperationKind::all_to_all: return bytes * static_cast<std::size_t>(ranks);
    default: return bytes;  // all_gather_v: the sum, which is at least every rank's chunk
  }
}

Status host_inline(const CollectiveCall& call, CollectiveContext& context) {
  const std::size_t payload_bytes = inline_payload_bytes(call, context.host.local_size());
  std::size_t mine = provides(call, context) ? payload_bytes : 0;
  if (call.descriptor.kind == OperationKind::all_gather_v) {
    mine = call.count_of(context.host.local_rank()) * call.element_bytes();
  }
  LOCKSTEP_RETURN_IF_ERROR(host_announce_payload(call, context, std::span(call.input, mine), payload_bytes));
  finish(call, context, payload_bytes);
  return Status();
}

}  // namespace lockstep
