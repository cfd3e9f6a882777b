// Large all_reduce and reduce on one host.
//
// Every rank owns one slice of the elements. It reduces its slice over all ranks' inputs in one
// pass, in rank order, and the result goes to every rank (reduce: to the root). Each element is so
// reduced in one place, and everybody gets the same bits.
//
// *Slices*: where every buffer lies in registered memory, the owner reads the inputs in place and
// writes the result straight into all outputs. Nothing is copied; for two ranks the work is
// t = a + b; a = t; b = t over half of the elements each. Two synchronisations in all.
//
// *Staged*: private memory passes through the ranks' shared staging rooms in pieces that stay in
// the second-level cache. In step t every rank
//     copies in   piece t of its input of all slices but its own,
//     reduces     piece t-1 of its slice: its own input and what the others copied in,
//                 to its output and to its staging room,
//     copies out  piece t-2 of the other slices' results,
// then all synchronise. Staging rooms for copying in and for results alternate between even and
// odd steps, so that one synchronisation per step is enough.
#pragma once

#include "collectives/context.h"

namespace lockstep {

enum class HostMemoryPath { automatic, staged };

// all_reduce or reduce; all ranks on one host.
Status host_all_reduce(const CollectiveCall& call, CollectiveContext& context, HostMemoryPath path);

}  // namespace lockstep
