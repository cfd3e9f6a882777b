// Moves a state from one rank to others: along a chain, from tensors' memory into tensors' memory.
//
// The first rank of the chain sends; each of the others receives from the one before it and passes on what has arrived
// while the rest is still coming. So the first rank sends everything once, however many ranks lack the state, and ranks
// that have it take no part.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/codec.h"
#include "lockstep/ddp/process_group.h"

namespace lockstep::detail {

// One message: bytes [begin, end) of tensor `first` alone, or all of the small tensors [first, last) packed together.
struct StateSegment {
  std::size_t first = 0;
  std::size_t last = 0;
  std::int64_t begin = 0;
  std::int64_t end = 0;
  bool packed = false;
  friend bool operator==(const StateSegment&, const StateSegment&) = default;
};
// Depends only on the tensors' sizes in bytes, so that both ends agree.
std::vector<StateSegment> plan_segments(std::span<const std::int64_t> bytes);

// For the ranks in the chain only. Blocks until the data has arrived and was passed on; throws Error if the group
// fails.
class StateChain {
 public:
  // `ranks`: of the group, in the order of the chain; this rank is among them.
  StateChain(ProcessGroup& group, const std::vector<int>& ranks);

  bool sends_first() const { return from_ < 0; }
  // The first rank's message, on all. protocol_error (thrown) if it announces more than `limit` bytes.
  Bytes pass(Bytes message, std::size_t limit);
  // Every rank's tensors become the first rank's. They are contiguous, on the CPU, and as large on all ranks. If it
  // throws, a receiver's tensors hold anything.
  void pass(const std::vector<at::Tensor>& tensors);

 private:
  ProcessGroup& group_;
  int from_ = -1;  // the rank before this one; -1: none
  int to_ = -1;
};

}  // namespace lockstep::detail
