// What an operation is: the values that must be equal on all ranks.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "lockstep/base/status.h"
#include "lockstep/collectives/operation.h"

namespace lockstep {

// Two ranks that run the same operation have equal descriptors; anything else is a mismatch.
struct OpDescriptor {
  std::uint64_t sequence = 0;  // number of the operation in its group, from 1
  OperationKind kind = OperationKind::barrier;
  DType dtype = DType::u8;
  ReduceOp op = ReduceOp::sum;  // only if the kind reduces
  std::int32_t root = -1;       // only if the kind has one
  std::uint64_t count = 0;      // elements per rank: all_reduce, reduce, broadcast: of the buffer;
                                // all_gather, gather: of the input; reduce_scatter, scatter: of the
                                // output; all_to_all: per pair; all_gather_v: the sum
  std::uint64_t digest = 0;     // all_gather_v: hash of the counts; others: the label (Operation::tag)

  friend bool operator==(const OpDescriptor&, const OpDescriptor&) = default;
};

// Of a collective on `size` ranks; the number is the caller's. The arguments need not be right.
OpDescriptor descriptor_of(const Operation& operation, int size);

// "all_reduce(count 1024, f32, sum) #17"
std::string describe(const OpDescriptor& op);

// The error that names both sides; `mine` was called by `my_rank`, `theirs` by `their_rank`.
Status mismatch_error(int my_rank, const OpDescriptor& mine, int their_rank, const OpDescriptor& theirs);

}  // namespace lockstep
