// Collectives on strings and other bytes of any length: torch.distributed's object collectives, without pickle. What a
// program sends is its own format; JSON or a table of numbers as bytes, for example. Nothing that arrives is executed.
//
// Blocking; throw Error. Ranks, groups and time-outs are those of collectives.h.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lockstep/ddp/collectives.h"

namespace lockstep {

// Every rank's value, in the order of the group's ranks. On a group that this process is not in: empty.
std::vector<std::string> all_gather_object(std::string_view value, const TensorCallOptions& options = {});
// Every rank's value on `dst`; empty elsewhere.
std::vector<std::string> gather_object(std::string_view value, int dst, const TensorCallOptions& options = {});
// The value of `src`. On other ranks `value` is ignored.
std::string broadcast_object(std::string_view value, int src, const TensorCallOptions& options = {});

}  // namespace lockstep
