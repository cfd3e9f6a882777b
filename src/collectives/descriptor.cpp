#include "collectives/descriptor.h"

#include <fmt/format.h>

namespace lockstep {

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
