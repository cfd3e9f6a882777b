// `lockstep bench ddp`: the time of a training step with DDP, without it, and in PyTorch.
#pragma once

#include <string>
#include <vector>

namespace lockstep::bench {

struct DdpBenchOptions {
  std::string model = "mlp";  // mlp, cnn, gpt
  int batch = 64;             // samples per rank
  int nproc = 2;
  int rounds = 7;                  // each runs every contestant once, in random order
  int steps = 5;                   // per round
  std::vector<std::string> peers;  // torch
  std::string json_file;
};

// Prints a table; returns the exit code: 0; 1 after a failure; 2 for options that make no sense.
int run_ddp_benchmark(const DdpBenchOptions& options);

}  // namespace lockstep::bench
