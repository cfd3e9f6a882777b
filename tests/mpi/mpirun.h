// Starts programs with the mpirun of one MPI.
#pragma once

#include <unistd.h>

#include <string>
#include <vector>

#include "support/process_set.h"

namespace lockstep::testing {

inline bool is_installed(const std::string& mpi) { return ::access(("/usr/bin/mpirun." + mpi).c_str(), X_OK) == 0; }

// `options` are mpirun's own. More ranks than cores: so that ranks yield while they wait.
inline ProcessSet mpirun(const std::string& mpi, int ranks, const std::vector<std::string>& program,
                         const std::vector<std::string>& options = {}, Environment environment = {}) {
  for (const char* name : {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "LOCKSTEP_STORE_FD"}) {
    environment[name] = std::nullopt;
  }
  environment["OMPI_ALLOW_RUN_AS_ROOT"] = environment["OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"] = "1";
  std::vector<std::string> command = {"mpirun." + mpi};
  if (mpi == "openmpi") {
    command.insert(command.end(), {"--oversubscribe", "--bind-to", "none", "--mca", "mpi_yield_when_idle", "1"});
  } else {
    command.insert(command.end(), {"-launcher", "fork", "-bind-to", "none"});
  }
  command.insert(command.end(), options.begin(), options.end());
  command.insert(command.end(), {"-n", std::to_string(ranks)});
  command.insert(command.end(), program.begin(), program.end());
  return start_program(1, command, {.environment = std::move(environment)});
}

}  // namespace lockstep::testing
