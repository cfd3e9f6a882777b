// Which rank this is, if the process was not started by Lockstep's launcher but by Slurm's srun, Open MPI's mpirun or a
// launcher that implements PMI (MPICH, Intel MPI, Cray). Pure: the environment is an argument.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "lockstep/base/status.h"
#include "rendezvous/environment.h"

namespace lockstep {

struct SchedulerPlacement {
  std::string scheduler;  // "Slurm", "Open MPI", "PMI": for messages
  int rank = 0;
  int world_size = 1;
  std::optional<int> local_rank = {};
  std::optional<int> local_world_size = {};
  // Loopback if all ranks are on one host, else the first host of the job; empty if that is unknown.
  std::string master_host;
  std::uint16_t master_port = 0;  // from the job's id, see port_of_job
};

// Nothing if the process was started by none of them. In a Slurm job only the tasks of `srun` count: the shell of
// `sbatch` and `salloc` has Slurm's variables too, but is not a rank. If one launcher ran inside the other, the inner
// one counts (mpirun within srun). Missing, malformed and contradictory variables are invalid_argument, named.
Result<std::optional<SchedulerPlacement>> find_scheduler_placement(const Environment& environment);

// The result of the public is_launched(), for this environment.
bool is_launched(const Environment& environment);

// 10000 + (16 * job + step) mod 20000 for a numeric id, 10000 + FNV-1a-32(job) mod 20000 for another text, so
// that jobs on one host rarely collide, and below the ports that Linux assigns by itself. Empty: 29500.
std::uint16_t port_of_job(const std::string& job, std::uint64_t step);

// For the error if no rank is known: explains why Slurm's variables were not used; empty if there are none.
std::string slurm_hint(const Environment& environment);

}  // namespace lockstep
