// `lockstep bench elastic`: how long training pauses after one of its processes is killed, and what commit(), which
// makes recovery possible, costs without failures.
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
  int commit_batch = 64;                // samples per rank while commit() is timed
  int commit_steps = 20;                // per round, with and without commit()
  HostLayout hosts = {};                // also between virtual hosts (network namespaces)
  std::string rate = {};                // of the links between them; empty: not shaped
  std::vector<std::string> peers = {};  // torch
  std::vector<std::string> cases = {};  // empty: all that these options allow
  std::string json_file = {};
  std::string logs = {};  // a folder to keep the output of the ranks in; empty: it is not kept
};

// Prints a table; returns the exit code: 0; 1 after a failure; 2 for invalid options.
int run_elastic_benchmark(const ElasticBenchOptions& options);

}  // namespace lockstep::bench
