// The job around MPI: what MPI itself lacks, and every group over it needs.
#pragma once

#include <memory>
#include <string>

#include "lockstep/communicator/communicator.h"
#include "lockstep/rendezvous/init_options.h"
#include "mpi/mpi_engine.h"
#include "store/tcp/tcp_store_server.h"

namespace lockstep::mpi {

// Shared by all groups of one init_process_group().
//
// Rank and size are MPI's. Rank 0 opens a store and sends its address and a fresh secret to the other ranks over MPI.
// Through the store the ranks form a communicator of Lockstep's own engine, the watch group: it detects a process that
// dies or stops, names it, and carries abort(). No MASTER_ADDR is needed.
struct MpiJob {
  std::shared_ptr<MpiEngine> engine;
  std::unique_ptr<TcpStoreServer> server;  // on rank 0
  std::shared_ptr<Store> store;
};

// The result of forming the world.
struct MpiWorld {
  std::shared_ptr<MpiJob> job;
  lockstep_mpi_comm* comm = nullptr;
  std::shared_ptr<Communicator> watch;
};

// All processes that mpirun started call it. Errors state what is wrong and what to do; after an error, nothing is left
// behind except MPI itself.
Result<MpiWorld> form_world(const std::string& backend, const CommunicatorOptions& options);

}  // namespace lockstep::mpi
