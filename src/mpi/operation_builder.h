// An operation in MPI's terms: checks the arguments, then builds the calls for the progress thread.
#pragma once

#include <chrono>
#include <memory>

#include "lockstep/collectives/operation.h"
#include "mpi/channel_operation.h"
#include "mpi/plugin_abi.h"

namespace lockstep::mpi {

// What an operation needs from its communicator. The pointers must outlive every operation.
struct OperationContext {
  const lockstep_mpi_plugin* mpi = nullptr;
  lockstep_mpi_comm* comm = nullptr;
  std::string library = {};  // "Open MPI v4.1.4"
  int rank = 0;
  int size = 1;
  int highest_tag = 0;
  std::chrono::milliseconds timeout{0};  // of operations that set none of their own
};

// `memory` keeps the buffers alive until MPI has finished with them. Throws Error(invalid_argument).
ChannelOperation build_operation(const lockstep::Operation& operation, const OperationContext& context,
                                 std::shared_ptr<void> memory);

}  // namespace lockstep::mpi
