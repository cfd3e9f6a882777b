// The ranks that a scheduler started, in the variables that torch.distributed reads.
#pragma once

#include <map>
#include <string>

namespace lockstep::python {

// If srun, mpirun or another PMI launcher started this process: RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT, LOCAL_RANK
// and LOCAL_WORLD_SIZE as Lockstep would use them. Empty if RANK or WORLD_SIZE is set, or if there is no scheduler.
// Throws Error (a RuntimeError in Python) if the scheduler's variables contradict each other.
std::map<std::string, std::string> scheduler_environment();

}  // namespace lockstep::python
