// Whether somebody has started this process as a rank of a job.
#pragma once

namespace lockstep {

// True where RANK or WORLD_SIZE is set (`lockstep run`, torchrun, by hand), or where Slurm's srun, Open MPI's mpirun or
// a launcher that speaks PMI started the process: then init_process_group() finds its place in the environment. For
// programs that otherwise start ranks of their own (lockstep::spawn). Any thread, as long as none changes the
// environment.
bool is_launched();

}  // namespace lockstep
