// Options of single operations.
#pragma once

#include <chrono>
#include <optional>

#include "lockstep/collectives/types.h"

namespace lockstep {

// Options of single calls; designated initialisers: group.all_reduce(x, {.op = ReduceOp::avg}).
struct ReduceOptions {
  ReduceOp op = ReduceOp::sum;
  std::optional<std::chrono::milliseconds> timeout = std::nullopt;
};
struct CallOptions {
  std::optional<std::chrono::milliseconds> timeout = std::nullopt;
};

}  // namespace lockstep
