// `lockstep bench ddp`: the time of a training step with DDP on several engines, without DDP, and in PyTorch.
#pragma once

#include "bench/driver/options.h"

namespace lockstep::bench {

// Prints a table; returns the exit code: 0; 1 after a failure; 2 for invalid options.
int run_ddp_benchmark(const DdpBenchOptions& options);

}  // namespace lockstep::bench
