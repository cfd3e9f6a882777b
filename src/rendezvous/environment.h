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

// The value of a variable; nullopt where it is not set.
using Environment = std::function<std::optional<std::string>(const char* name)>;
// getenv(3). The program must not change its environment at the same time.
Environment process_environment();

// All that was said about the place of this process in the world.
struct Placement {
  InitScheme scheme = InitScheme::env;
  int rank = 0;
  int world_size = 1;
  // env and tcp: where the store is. Empty and 0 where nothing was said, which only a world of one
  // rank can do.
  std::string master_host;
  std::uint16_t master_port = 0;
  std::string path;              // file: where the store is
  std::string scheduler;         // "Slurm", "Open MPI", "PMI": who said all this, where RANK and WORLD_SIZE did not
  bool store_is_served = false;  // LOCKSTEP_STORE_IS_SERVED=1: nobody has to start the store
  std::optional<int> store_fd;   // LOCKSTEP_STORE_FD: an inherited listening socket for rank 0 to serve on
};

// env://: RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT, and LOCAL_RANK, LOCAL_WORLD_SIZE where set.
// Where nobody set RANK, WORLD_SIZE, InitOptions::rank or world_size, they and the master come from the
// scheduler that started the process (rendezvous/scheduler_environment.h); MASTER_ADDR and MASTER_PORT win.
// InitOptions::rank and world_size may take the place of RANK and WORLD_SIZE, or of the query keys
// of tcp:// and file://; said twice, they must agree. Every missing, malformed or contradictory
// value is invalid_argument and named with its value and what is expected.
Result<Placement> find_placement(const InitOptions& options, const Environment& environment);

}  // namespace lockstep
