// Options of a single operation, as designated initialisers: group.all_reduce(x, {.op = ReduceOp::avg}).
#pragma once

#include <chrono>
#include <optional>

#include "lockstep/collectives/types.h"

namespace lockstep {

// For operations that reduce. Without a timeout, the group's applies.
struct ReduceOptions {
  ReduceOp op = ReduceOp::sum;
  std::optional<std::chrono::milliseconds> timeout = std::nullopt;
};
// For all other operations.
struct CallOptions {
  std::optional<std::chrono::milliseconds> timeout = std::nullopt;
};

}  // namespace lockstep
