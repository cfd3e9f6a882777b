// Which cores each rank of a node runs on.
#pragma once

#include <vector>

namespace lockstep::launch {

struct Core {
  int id = 0;       // the kernel's number of the logical CPU
  int package = 0;  // the processor that it belongs to
  int core = 0;     // the physical core within it; hardware threads of one core share it
};

// The cores that this process may use, from its affinity mask and /sys; at least one.
std::vector<Core> usable_cores();

// One set of ids for each rank, of equal size (a remainder of the division stays unused): hardware threads of one core
// stay together, and so do cores of one processor. Empty, which means "do not bind", if there are more ranks than
// cores. Pure.
std::vector<std::vector<int>> plan_binding(std::vector<Core> cores, int ranks);

// For OMP_NUM_THREADS: a rank's share of the cores, at least 1. Pure.
int cores_per_rank(int cores, int ranks);

}  // namespace lockstep::launch
