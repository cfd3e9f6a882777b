/* The C interface between Lockstep and an MPI plug-in.
 *
 * A plug-in is a shared library that is linked with one MPI and exports one function,
 *   const lockstep_mpi_plugin* lockstep_mpi_plugin_entry();
 * Nothing else in Lockstep includes mpi.h or links MPI. The table is constant and valid until the process ends.
 *
 * Every function but error_text returns 0, or an error code of that MPI for error_text; none ends the process
 * because of an error of MPI on a communicator made here. All are called by one thread at a time (the progress thread),
 * from init to finalize. Element types and operations are the numbers of lockstep::DType and lockstep::ReduceOp
 * (lockstep/collectives/types.h); `avg` is never passed, nor are sum and prod of 16-bit
 * floats. Counts are of elements and at most 2^31 - 1. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A table of another version is not used. Raised by every change of this file. */
#define LOCKSTEP_MPI_ABI_VERSION 2
#define LOCKSTEP_MPI_ENTRY "lockstep_mpi_plugin_entry"

typedef struct lockstep_mpi_comm lockstep_mpi_comm;
typedef struct lockstep_mpi_request lockstep_mpi_request;

/* accumulator[i] = operand[i] op accumulator[i], for what MPI lacks: min and max that give NaN if an
 * input is NaN, and those of 16-bit floats. May be called from any function below. */
typedef void (*lockstep_mpi_combine)(int dtype, int op, const void* operand, void* accumulator, size_t count);

/* As in MPI: the higher ones include the lower ones. */
enum lockstep_mpi_threads {
  lockstep_mpi_single = 0,
  lockstep_mpi_funneled = 1,
  lockstep_mpi_serialized = 2,
  lockstep_mpi_multiple = 3
};

/* What init found. */
typedef struct lockstep_mpi_world {
  int by_program;  /* 1: the program had initialised MPI itself */
  int ended;       /* 1: MPI was initialised and finalised before; it cannot start again. Nothing else is set then. */
  int threads;     /* enum lockstep_mpi_threads: what this MPI gives */
  int rank;        /* in MPI_COMM_WORLD */
  int size;        /* of MPI_COMM_WORLD */
  int highest_tag; /* of send and recv */
  char version[256];
} lockstep_mpi_world;

typedef struct lockstep_mpi_plugin {
  uint32_t abi_version; /* LOCKSTEP_MPI_ABI_VERSION */
  uint32_t size;        /* sizeof(lockstep_mpi_plugin) */
  const char* name;     /* "openmpi", "mpich" */

  /* Initialises MPI for a program that calls MPI from this thread only (MPI_THREAD_FUNNELED), unless that was done.
   * May wait for all processes of the job. Once in a process if it started MPI, else again after each release. */
  int (*init)(lockstep_mpi_combine combine, lockstep_mpi_world* world);
  /* Calls `callback` once, on the thread that finalises MPI, at the start of MPI_Finalize. Once in a process. */
  int (*at_finalize)(void (*callback)());
  /* Frees what init made besides MPI itself. Not after MPI_Finalize. */
  int (*release)();
  /* MPI_Finalize. Waits for all processes. */
  int (*finalize)();
  void (*error_text)(int code, char* text, size_t size);

  /* A copy of MPI_COMM_WORLD: `*comm` may be used once `*request` is complete. Collective. */
  int (*copy_world)(lockstep_mpi_comm** comm, lockstep_mpi_request** request);
  /* Ranks `ranks` of `parent`, in this order. Only they call it; it waits for them. */
  int (*create_group)(lockstep_mpi_comm* parent, const int* ranks, int count, lockstep_mpi_comm** comm);
  /* No operation may be pending on it. */
  int (*free_comm)(lockstep_mpi_comm* comm);

  /* All start an operation and return; the buffers must stay valid until `*request` is complete. Inputs and outputs do
   * not overlap; `data` is in place. reduce: `output` counts on the root; gather and scatter: the large buffer. */
  int (*all_reduce)(lockstep_mpi_comm*, void* data, size_t count, int dtype, int op, lockstep_mpi_request**);
  int (*reduce)(lockstep_mpi_comm*, void* data, size_t count, int dtype, int op, int root, lockstep_mpi_request**);
  int (*broadcast)(lockstep_mpi_comm*, void* data, size_t count, int dtype, int root, lockstep_mpi_request**);
  int (*all_gather)(lockstep_mpi_comm*, const void* input, void* output, size_t count, int dtype,
                    lockstep_mpi_request**);
  /* `counts` holds one number for each rank; their sum is at most 2^31 - 1. */
  int (*all_gather_v)(lockstep_mpi_comm*, const void* input, void* output, const size_t* counts, int dtype,
                      lockstep_mpi_request**);
  int (*reduce_scatter)(lockstep_mpi_comm*, const void* input, void* output, size_t count, int dtype, int op,
                        lockstep_mpi_request**);
  int (*gather)(lockstep_mpi_comm*, const void* input, void* output, size_t count, int dtype, int root,
                lockstep_mpi_request**);
  int (*scatter)(lockstep_mpi_comm*, const void* input, void* output, size_t count, int dtype, int root,
                 lockstep_mpi_request**);
  int (*all_to_all)(lockstep_mpi_comm*, const void* input, void* output, size_t count, int dtype,
                    lockstep_mpi_request**);
  int (*barrier)(lockstep_mpi_comm*, lockstep_mpi_request**);
  int (*send)(lockstep_mpi_comm*, const void* data, size_t count, int dtype, int destination, int tag,
              lockstep_mpi_request**);
  int (*recv)(lockstep_mpi_comm*, void* data, size_t count, int dtype, int source, int tag, lockstep_mpi_request**);

  /* Advances MPI. Complete, with or without an error: `*done` is 1 and the request is freed; `*received` is then the
   * number of elements that arrived, for recv. */
  int (*test)(lockstep_mpi_request* request, int* done, size_t* received);
  /* Advances MPI while nothing is pending here: peers may wait for bytes that this process still holds. */
  int (*advance)();
} lockstep_mpi_plugin;

typedef const lockstep_mpi_plugin* (*lockstep_mpi_entry)();

#ifdef __cplusplus
}
#endif
