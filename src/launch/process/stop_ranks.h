// Ending the ranks of a node.
#pragma once

#include <vector>

#include "launch/process/rank_set.h"

namespace lockstep::launch {

// Sends `signal` to all ranks, waits up to `grace` for them to end, and kills the rest. A second stop
// signal to the launcher (Ctrl-C again) kills at once. Returns when none runs; their ends are added to `ends`.
void stop_ranks(RankSet& ranks, int signal, std::chrono::milliseconds grace, Console& console,
                const StopSignals& signals, std::vector<RankEnd>& ends);

}  // namespace lockstep::launch
