// Which rank this is and where the ranks meet, from InitOptions and the environment. Pure: the
// environment is an argument.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "lockstep/base/status.h"
#include "lockstep/rendezvous/init_options.h"
#include "rendezvous/init_method.h"

namespace lockstep {

// The value of a variable; nullopt if it is not set.
using Environment = std::function<std::optional<std::string>(const char* name)>;
// getenv(3). The program must not change its environment at the same time.
Environment process_environment();

// Everything that is configured about this process' rank and the store.
struct Placement {
  InitScheme scheme = InitScheme::env;
  int rank = 0;
  int world_size = 1;
  // env and tcp: where the store is. Empty and 0 if not configured, which is valid only for a world of one rank.
  std::string master_host;
  std::uint16_t master_port = 0;
  std::string path;              // file: where the store is
  std::string scheduler;         // "Slurm", "Open MPI", "PMI": the source of this, if not RANK and WORLD_SIZE
  bool store_is_served = false;  // LOCKSTEP_STORE_IS_SERVED=1: no rank has to serve the store
  std::optional<int> store_fd;   // LOCKSTEP_STORE_FD: an inherited listening socket for rank 0 to serve on
};

// env://: RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT, and LOCAL_RANK, LOCAL_WORLD_SIZE if set.
// If none of RANK, WORLD_SIZE, InitOptions::rank and world_size is set, they and the master come from the scheduler
// that started the process (rendezvous/scheduler_environment.h); MASTER_ADDR and MASTER_PORT take precedence.
// InitOptions::rank and world_size may replace RANK and WORLD_SIZE, or the query keys of tcp:// and file://; if both
// are given, they must agree. Every missing, malformed or contradictory value is invalid_argument; the message names
// it, its value and what is expected.
Result<Placement> find_placement(const InitOptions& options, const Environment& environment);

}  // namespace lockstep
