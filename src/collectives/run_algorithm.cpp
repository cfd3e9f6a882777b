#include "collectives/run_algorithm.h"

#include <fmt/format.h>

#include "collectives/hierarchical.h"
#include "collectives/host/all_reduce.h"
#include "collectives/host/inline.h"
#include "collectives/host/pull.h"
#include "collectives/stream/algorithms.h"

namespace lockstep {
namespace {

Status run_host(Algorithm algorithm, const CollectiveCall& call, CollectiveContext& context) {
  if (algorithm == Algorithm::host_inline) return host_inline(call, context);
  const auto path = algorithm == Algorithm::host_staged ? HostMemoryPath::staged : HostMemoryPath::automatic;
  const auto kind = call.descriptor.kind;
  if (kind == OperationKind::all_reduce || kind == OperationKind::reduce) return host_all_reduce(call, context, path);
  return host_pull(call, context, path);
}

}  // namespace

Status run_algorithm(Algorithm algorithm, const CollectiveCall& call, CollectiveContext& context) {
  const auto kind = call.descriptor.kind;
  switch (algorithm) {
    case Algorithm::host_inline:
    case Algorithm::host_shared:
    case Algorithm::host_staged: return run_host(algorithm, call, context);
    case Algorithm::ring:
      return run_stream(kind == OperationKind::all_reduce ? stream_ring : stream_all_gather_ring, call, context);
    case Algorithm::direct: return run_stream(reduces(kind) ? stream_direct : stream_exchange, call, context);
    case Algorithm::pair: return run_stream(stream_pair, call, context);
    case Algorithm::small:
      if (kind == OperationKind::reduce) return run_stream(stream_reduce_small, call, context);
      return run_stream(context.topology.oversubscribed ? stream_small_oversubscribed : stream_small, call, context);
    case Algorithm::tree: return run_stream(stream_broadcast_tree, call, context);
    case Algorithm::chain: return run_stream(stream_broadcast_chain, call, context);
    case Algorithm::hierarchical:
      return kind == OperationKind::barrier ? hierarchical_barrier(call, context)
                                            : hierarchical_all_reduce(call, context);
    case Algorithm::automatic: break;
  }
  return Status(StatusCode::internal, fmt::format("no algorithm for {}", describe(call.descriptor)));
}

}  // namespace lockstep
