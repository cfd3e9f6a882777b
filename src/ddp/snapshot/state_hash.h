// Whether two processes have the same state, without sending it.
#pragma once

#include <cstdint>

#include "ddp/snapshot/tensors.h"

namespace torch::optim {
class Optimizer;
}

namespace lockstep::checkpoint {

// Of the state of all parameters, in their order, and of the options of each group (learning rate, betas, ...). Equal
// bits give equal hashes in every process. Throws Error as content_of_optimizer() does.
std::uint64_t hash_of_optimizer(const torch::optim::Optimizer& optimizer);
// `hash` and the names, types, shapes and bits of `tensors`.
std::uint64_t add_to_hash(std::uint64_t hash, const NamedTensors& tensors);

}  // namespace lockstep::checkpoint
