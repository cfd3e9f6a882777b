// Runs an operation with the algorithm that the selector chose for it.
#pragma once

#include "collectives/context.h"
#include "collectives/selector.h"

namespace lockstep {

// Blocks until the operation is complete on this rank, or until the context's WaitScope ends the wait.
Status run_algorithm(Algorithm algorithm, const CollectiveCall& call, CollectiveContext& context);

}  // namespace lockstep
