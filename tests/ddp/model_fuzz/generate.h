// From a seed to a case. Pure: the same seed gives the same case in every process of one program.
#pragma once

#include "ddp/model_fuzz/case.h"
#include "ddp/model_fuzz/random.h"

namespace lockstep::fuzz {

// Supported by DDP (rules.h).
Case generate(std::uint64_t seed);

// A model alone: 2 to 8 layers, and expressions of parameters in them. `large`: with parameters around the 1 MiB
// from which DDP reduces a gradient in place.
Model generate_model(Random& random, bool large);

}  // namespace lockstep::fuzz
