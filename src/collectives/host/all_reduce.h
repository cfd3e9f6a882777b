// Large all_reduce and reduce on one host.
//
// Every rank owns one chunk of the elements. It reduces its chunk over all ranks' inputs in one
// pass, in rank order, and the result goes to every rank (reduce: to the root). Each element is thus
// reduced in one place, and all ranks get the same bits.
//
// *In place*: if every buffer is in registered memory, the owner reads the inputs in place and
// writes the result straight into all outputs. Nothing is copied; for two ranks the work is
// t = a + b; a = t; b = t over half of the elements each. Two synchronisations in all.
//
// *Staged*: private memory passes through the ranks' staging memory in segments that stay in
// the second-level cache. In step t every rank
//     copies in   segment t of its input of all chunks but its own,
//     reduces     segment t-1 of its chunk: its own input and what the others copied in,
//                 to its output and to its staging memory,
//     copies out  segment t-2 of the other chunks' results,
// then all synchronise. The two halves of the staging memory alternate between even and
// odd steps, so that one synchronisation per step is enough.
#pragma once

#include "collectives/context.h"

namespace lockstep {

enum class HostMemoryPath { automatic, staged };

// all_reduce or reduce; all ranks on one host.
Status host_all_reduce(const CollectiveCall& call, CollectiveContext& context, HostMemoryPath path);

}  // namespace lockstep
