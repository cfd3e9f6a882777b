// Whether a launcher or a scheduler started this process as a rank of a job.
#pragma once

namespace lockstep {

// True if RANK or WORLD_SIZE is set (by `lockstep run`, torchrun or the user), or if Slurm's srun, Open MPI's mpirun or
// a launcher that uses PMI started the process: then init_process_group() finds the rank in the environment. For
// programs that otherwise start their own ranks (lockstep::spawn). May be called from any thread, as long as no other
// thread changes the environment.
bool is_launched();

}  // namespace lockstep
