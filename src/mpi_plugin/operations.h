// The operations of the table, with communicators and requests as the plug-in keeps them.
#pragma once

#include <mpi.h>

#include <vector>

#include "mpi/plugin_abi.h"

struct lockstep_mpi_comm {
  MPI_Comm handle = MPI_COMM_NULL;
};

struct lockstep_mpi_request {
  MPI_Request handle = MPI_REQUEST_NULL;
  MPI_Datatype received_type = MPI_DATATYPE_NULL;  // of recv
  lockstep_mpi_comm* new_comm = nullptr;           // of copy_world
  // MPI reads these until the operation is complete.
  std::vector<int> counts = {};
  std::vector<int> offsets = {};
};

namespace lockstep::mpi_plugin {

// Fills in what follows all_reduce in the table, up to and including test.
void add_operations(lockstep_mpi_plugin* table);

}  // namespace lockstep::mpi_plugin
