// Parts of the state of training as bytes, and back: for snapshots, and for sending them to another process.
//
// What is read back is bit-identical: step counters, moments, learning rates. Throw Error. The bytes may be from
// another process or another LibTorch of the same or a lower version.
#pragma once

#include <string>
#include <string_view>

namespace torch::optim {
class Optimizer;
}

namespace lockstep::checkpoint {

// A torch archive (as torch::save writes it) with state and options of any optimizer of LibTorch. Only reads the
// optimizer. A ZeroRedundancyOptimizer needs consolidate_state_dict() first.
std::string optimizer_to_bytes(const torch::optim::Optimizer& optimizer);
// Replaces the state and the options (learning rate, ...) of `optimizer`, which has the same kind, parameter groups and
// parameter shapes as the one that was saved; invalid_argument otherwise, if LibTorch detects it, and then the state is
// unchanged.
void optimizer_from_bytes(torch::optim::Optimizer& optimizer, std::string_view bytes);

// "torch::optim::Adam"; for a ZeroRedundancyOptimizer, the plain optimizer's, whose state it can load.
std::string optimizer_kind(const torch::optim::Optimizer& optimizer);

// Of the default generator of the CPU, which dropout, shuffling and initialisation use.
std::string rng_to_bytes();
// invalid_argument if these are not a generator's bytes.
void rng_from_bytes(std::string_view bytes);

}  // namespace lockstep::checkpoint
