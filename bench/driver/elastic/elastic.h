// `lockstep bench elastic`: how long a training stands still when one of its processes is killed, and what being
// able to go on costs while none is.
#pragma once

#include <string>
#include <vector>

#include "bench/driver/options.h"

namespace lockstep::bench {

struct ElasticBenchOptions {
  std::string model = "mlp";            // as in bench/ddp/models.h
  int batch = 8;                        // samples per rank
  int nproc = 4;                        // on this host
  int rounds = 3;                       // each runs every case once, in random order
  int commit_batch = 64;                // samples per rank where commit() is timed
  int commit_steps = 20;                // per round, with and without commit()
  HostLayout hosts = {};                // also between hosts of network namespaces
  std::string rate = {};                // of the links between them; empty: not shaped
  std::vector<std::string> peers = {};  // torch
  std::vector<std::string> cases = {};  // empty: all that these options allow
  std::string json_file = {};
  std::string logs = {};  // a folder where what the ranks wrote is kept; empty: nowhere
};

// Prints a table; returns the exit code: 0; 1 after a failure; 2 for options that make no sense.
int run_elastic_benchmark(const ElasticBenchOptions& options);

}  // namespace lockstep::bench
