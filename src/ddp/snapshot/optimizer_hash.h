// Whether two processes have the same optimizer state, without sending it.
#pragma once

#include <cstdint>

namespace torch::optim {
class Optimizer;
}

namespace lockstep::checkpoint {

// Of the state of all parameters, in their order, and of the options of each group (learning rate, betas, ...). Equal
// bits give equal hashes in every process.
std::uint64_t hash_of_optimizer(const torch::optim::Optimizer& optimizer);

}  // namespace lockstep::checkpoint
