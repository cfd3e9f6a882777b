#include "lockstep/collectives/operation.h"

namespace lockstep {

std::string_view to_string(OperationKind kind) {
  switch (kind) {
    case OperationKind::barrier: return "barrier";
    case OperationKind::all_reduce: return "all_reduce";
    case OperationKind::reduce: return "reduce";
    case OperationKind::broadcast: return "broadcast";
    case OperationKind::all_gather: return "all_gather";
    case OperationKind::all_gather_v: return "all_gather_v";
    case OperationKind::reduce_scatter: return "reduce_scatter";
    case OperationKind::gather: return "gather";
    case OperationKind::scatter: return "scatter";
    case OperationKind::all_to_all: return "all_to_all";
    case OperationKind::send: return "send";
    case OperationKind::recv: return "recv";
  }
  return "unknown";
}

bool reduces(OperationKind kind) {
  return kind == OperationKind::all_reduce || kind == OperationKind::reduce || kind == OperationKind::reduce_scatter;
}

bool is_collective(OperationKind kind) { return kind != OperationKind::send && kind != OperationKind::recv; }

Operation Operation::all_reduce(ConstBuffer input, Buffer output, const ReduceOptions& options) {
  return {.kind = OperationKind::all_reduce,
          .input = input,
          .output = output,
          .op = options.op,
          .timeout = options.timeout};
}

Operation Operation::all_reduce(Buffer data, const ReduceOptions& options) { return all_reduce(data, data, options); }

Operation Operation::reduce(ConstBuffer input, Buffer output, int root, const ReduceOptions& options) {
  return {.kind = OperationKind::reduce,
          .input = input,
          .output = output,
          .op = options.op,
          .peer = root,
          .timeout = options.timeout};
}

Operation Operation::reduce(Buffer data, int root, const ReduceOptions& options) {
  return reduce(data, data, root, options);
}

Operation Operation::broadcast(Buffer data, int root, const CallOptions& options) {
  return {.kind = OperationKind::broadcast, .input = data, .output = data, .peer = root, .timeout = options.timeout};
}

Operation Operation::all_gather(ConstBuffer input, Buffer output, const CallOptions& options) {
  return {.kind = OperationKind::all_gather, .input = input, .output = output, .timeout = options.timeout};
}

Operation Operation::all_gather_v(ConstBuffer input, Buffer output, std::span<const std::size_t> counts,
                                  const CallOptions& options) {
  return {.kind = OperationKind::all_gather_v,
          .input = input,
          .output = output,
          .counts = counts,
          .timeout = options.timeout};
}

Operation Operation::reduce_scatter(ConstBuffer input, Buffer output, const ReduceOptions& options) {
  return {.kind = OperationKind::reduce_scatter,
          .input = input,
          .output = output,
          .op = options.op,
          .timeout = options.timeout};
}

Operation Operation::gather(ConstBuffer input, Buffer output, int root, const CallOptions& options) {
  return {.kind = OperationKind::gather, .input = input, .output = output, .peer = root, .timeout = options.timeout};
}

Operation Operation::scatter(ConstBuffer input, Buffer output, int root, const CallOptions& options) {
  return {.kind = OperationKind::scatter, .input = input, .output = output, .peer = root, .timeout = options.timeout};
}

Operation Operation::all_to_all(ConstBuffer input, Buffer output, const CallOptions& options) {
  return {.kind = OperationKind::all_to_all, .input = input, .output = output, .timeout = options.timeout};
}

Operation Operation::barrier(const CallOptions& options) {
  return {.kind = OperationKind::barrier, .timeout = options.timeout};
}

Operation Operation::send(ConstBuffer data, int destination, int tag, const CallOptions& options) {
  return {.kind = OperationKind::send, .input = data, .peer = destination, .tag = tag, .timeout = options.timeout};
}

Operation Operation::recv(Buffer data, int source, int tag, const CallOptions& options) {
  return {.kind = OperationKind::recv, .output = data, .peer = source, .tag = tag, .timeout = options.timeout};
}

Operation Operation::recv_any(Buffer data, int* source, int tag, const CallOptions& options) {
  return {.kind = OperationKind::recv,
          .output = data,
          .peer = kAnyRank,
          .tag = tag,
          .source = source,
          .timeout = options.timeout};
}

}  // namespace lockstep
