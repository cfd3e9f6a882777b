// Operations of c10d that are sequences of the engine's operations (python/operation_queue.h). All block, throw Error,
// and are collectives.
#pragma once

#include <ATen/ATen.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/communicator/communicator.h"

namespace lockstep::python {

using Timeout = std::optional<std::chrono::milliseconds>;

// Tags of messages that these sequences send; those of programs are not negative.
inline constexpr int kAllToAllTag = -1;
inline constexpr int kMonitoredBarrierTag = -2;

// outputs[r] gets what rank r has in inputs[this rank]. Blocks may have different sizes, and be empty; a sender and a
// receiver that disagree on a size are an error on all ranks (invalid_argument), after which the group is usable. All
// tensors are contiguous.
void all_to_all(Communicator& group, const std::vector<at::Tensor>& inputs, const std::vector<at::Tensor>& outputs,
                Timeout timeout);

// Replaces the content of the sparse (COO) tensor by the sum of all ranks' tensors, coalesced. Ranks may have different
// numbers of elements; shapes and types must be equal.
void all_reduce_sparse(Communicator& group, at::Tensor tensor, Timeout timeout);

// A barrier in which rank 0 waits for each rank until the timeout and reports the ones that are missing: the first one,
// or all of them. The group is usable after a failure.
void monitored_barrier(Communicator& group, std::chrono::milliseconds timeout, bool wait_all_ranks);

}  // namespace lockstep::python
