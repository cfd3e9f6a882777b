#include "collectives/descriptor.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <numeric>

namespace lockstep {

OpDescriptor descriptor_of(const Operation& operation, int size) {
  const ConstBuffer& input = operation.input;
  const Buffer& output = operation.output;
  OpDescriptor op{.kind = operation.kind, .digest = static_cast<std::uint32_t>(operation.tag)};
  if (operation.kind != OperationKind::barrier) op.dtype = input.dtype;
  if (reduces(operation.kind)) op.op = operation.op;
  const auto set_root = [&] { op.root = operation.peer; };
  switch (operation.kind) {
    case OperationKind::barrier:
    case OperationKind::send:
    case OperationKind::recv: break;
    case OperationKind::reduce:
    case OperationKind::gather: set_root(); [[fallthrough]];
    case OperationKind::all_reduce:
    case OperationKind::all_gather: op.count = input.count; break;
    case OperationKind::broadcast:
    case OperationKind::scatter: set_root(); [[fallthrough]];
    case OperationKind::reduce_scatter:
      op.dtype = output.dtype;
      op.count = output.count;
      break;
    case OperationKind::all_gather_v:
      op.count = std::accumulate(operation.counts.begin(), operation.counts.end(), std::size_t{0});
      op.digest = XXH3_64bits(operation.counts.data(), operation.counts.size_bytes()) & 0xffffffffU;
      break;
    case OperationKind::all_to_all: op.count = input.count / static_cast<std::size_t>(size); break;
  }
  return op;
}

std::string describe(const OpDescriptor& op) {
  if (op.kind == OperationKind::barrier) return fmt::format("barrier #{}", op.sequence);
  std::string arguments = fmt::format("count {}, {}", op.count, to_string(op.dtype));
  if (reduces(op.kind)) arguments += fmt::format(", {}", to_string(op.op));
  if (op.root >= 0) arguments += fmt::format(", root {}", op.root);
  if (op.digest != 0 && op.kind == OperationKind::all_gather_v) {
    arguments += fmt::format(", counts digest {:08x}", op.digest & 0xffffffffU);
  } else if (op.digest != 0) {
    arguments += fmt::format(", label {}", op.digest);
  }
  return fmt::format("{}({}) #{}", to_string(op.kind), arguments, op.sequence);
}

Status mismatch_error(int my_rank, const OpDescriptor& mine, int their_rank, const OpDescriptor& theirs) {
  // Lower rank first, so that all ranks that see the same pair report the same message.
  const bool mine_first = my_rank < their_rank;
  return Status(StatusCode::mismatch,
                fmt::format("ranks called different operations: rank {} called {}, rank {} called {}; every rank of a "
                            "group must issue the same collectives in the same order with the same arguments",
                            mine_first ? my_rank : their_rank, describe(mine_first ? mine : theirs),
                            mine_first ? their_rank : my_rank, describe(mine_first ? theirs : mine)));
}

}  // namespace lockstep
