// Large broadcast, all_gather, all_gather_v, reduce_scatter, gather, scatter and all_to_all on one
// host: every rank pulls what belongs into its output from the inputs of the ranks that have it.
//
// An input consists of chunks: one (broadcast, all_gather, gather), or one for each rank
// (reduce_scatter, scatter, all_to_all), of which a rank pulls the one with its number.
//
// If all inputs that are needed are in registered memory, they are read in place: one pass, and a
// synchronisation at the end, before which no rank may change its input.
//
// Private inputs pass through the staging memory: in step t every rank that provides something
// copies segment t of each of its chunks in, and every rank pulls segment t-1; two halves of the
// staging memory alternate, so that one synchronisation per step is enough.
#pragma once

#include "collectives/context.h"
#include "collectives/host/all_reduce.h"

namespace lockstep {

Status host_pull(const CollectiveCall& call, CollectiveContext& context, HostMemoryPath path);

}  // namespace lockstep
