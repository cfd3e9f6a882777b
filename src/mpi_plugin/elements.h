// MPI's names for Lockstep's element types and operations, and ours if MPI has none.
#pragma once

#include <mpi.h>

#include "mpi/plugin_abi.h"

namespace lockstep::mpi_plugin {

// Created by init, freed by release. 16-bit floats are two bytes with operations of their own.
int make_elements(lockstep_mpi_combine combine);
int free_elements();

// MPI_DATATYPE_NULL and MPI_OP_NULL for what does not exist (bitwise operations on floats, avg).
MPI_Datatype type_of(int dtype);
MPI_Op op_of(int dtype, int op);

}  // namespace lockstep::mpi_plugin
