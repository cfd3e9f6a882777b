// Commands that start the ranks of an MPI: on this host, or on the hosts of a virtual network.
#pragma once

#include <string>
#include <vector>

#include "bench/driver/network.h"

namespace lockstep::bench {

// One job of one MPI.
struct MpiJob {
  std::string mpi;  // "openmpi" or "mpich"
  int ranks = 0;
  bool share_cores = false;                 // more ranks than cores
  const VirtualNetwork* network = nullptr;  // null: this host only; else the same number of ranks on each host
  std::string folder = {};                  // for the script that replaces ssh
};

bool is_mpi(const std::string& engine);
// Why this MPI cannot start anything, or empty: "openmpi is missing: ...".
std::string why_no_mpirun(const std::string& mpi);

// The command line to put before the ranks' program. Rank r runs on host r / (ranks per host). Throws BenchError.
std::vector<std::string> mpirun_command(const MpiJob& job);
// Variables to add to the environment of mpirun ("NAME=value"), which all ranks inherit.
std::vector<std::string> mpirun_environment(const MpiJob& job);

}  // namespace lockstep::bench
