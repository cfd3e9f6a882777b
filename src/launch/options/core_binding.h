// Which cores each rank of a node runs on.
#pragma once

#include <vector>

namespace lockstep::launch {

struct Core {
  int id = 0;       // as the kernel numbers what can run a thread
  int package = 0;  // the processor that it is part of
  int core = 0;     // the physical core within it; hardware threads of one core share it
};

// Those that this process may use, from its affinity mask and /sys; at least one.
std::vector<Core> usable_cores();

// One set of ids for each rank, of equal size (the last cores go to nobody where the division leaves a rest): hardware
// threads of one core stay together, and so do cores of one processor. Empty, which means "do not bind", where there
// are more ranks than cores. Pure.
std::vector<std::vector<int>> plan_binding(std::vector<Core> cores, int ranks);

// For OMP_NUM_THREADS: what a rank's share of the cores is, at least 1. Pure.
int cores_per_rank(int cores, int ranks);

}  // namespace lockstep::launch
