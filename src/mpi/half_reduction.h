// Reductions of 16-bit floats over MPI, rounded once.
//
// MPI's own reductions would round after every addition, in an order that MPI chooses, and an average would overflow
// whenever the sum does. So each rank gets its part of all inputs, combines it in f32 as Lockstep's own engine does,
// and the parts are put together: the bytes of an all-reduce, 2 (n - 1) / n of the tensor from each rank, with one more
// message latency than the best algorithm; and equal bits on all ranks, in every run.
#pragma once

#include <memory>

#include "lockstep/collectives/types.h"
#include "mpi/channel_operation.h"

namespace lockstep::mpi {

// True for what MPI would round more than once: sum, avg and prod of f16 and bf16.
bool rounds_once(DType dtype, ReduceOp op);

// Sets what the operation does and keeps (start, then, finish, memory); the rest is the caller's. `memory` owns the
// buffers.
struct HalfReduction {
  const lockstep_mpi_plugin* mpi;
  lockstep_mpi_comm* comm;
  int rank;
  int size;
  ReduceOp op;
  std::shared_ptr<void> memory;

  void all_reduce(ChannelOperation& operation, Buffer data) const;
  void reduce(ChannelOperation& operation, Buffer data, int root) const;
  // `input` has size * output.count elements. The two may overlap.
  void reduce_scatter(ChannelOperation& operation, ConstBuffer input, Buffer output) const;
};

}  // namespace lockstep::mpi
