// Large broadcast, all_gather, all_gather_v, reduce_scatter, gather, scatter and all_to_all on one
// host: every rank pulls what belongs into its output from the inputs of those who have it.
//
// An input consists of blocks: one (broadcast, all_gather, gather), or one for each rank
// (reduce_scatter, scatter, all_to_all), of which a rank pulls the one with its number.
//
// Where all inputs that are needed lie in registered memory they are read in place: one pass, and a
// synchronisation at the end, before which nobody may change its input.
//
// Private inputs pass through the staging rooms: in step t every rank that provides something
// copies piece t of each of its blocks in, and every rank pulls piece t-1; two halves of the
// staging room alternate, so that one synchronisation per step is enough.
#pragma once

#include "collectives/context.h"
#include "collectives/host/all_reduce.h"

namespace lockstep {

Status host_pull(const CollectiveCall& call, CollectiveContext& context, HostMemoryPath path);

}  // namespace lockstep
