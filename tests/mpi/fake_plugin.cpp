// A plug-in without MPI: a world of one rank, which fails as the environment specifies. For what a real MPI does not do
// here.
//   FAKE_MPI_THREADS     the thread level that it gives, 0 to 3
//   FAKE_MPI_BY_PROGRAM  set: the program has started MPI itself
//   FAKE_MPI_HANGS       set: MPI_Init does not return
//   FAKE_MPI_VERSION     of the table
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "lockstep/collectives/types.h"
#include "mpi/plugin_abi.h"

struct lockstep_mpi_comm {};
struct lockstep_mpi_request {};

namespace {

int number(const char* name, int otherwise) {
  const char* const text = std::getenv(name);
  return text != nullptr ? std::atoi(text) : otherwise;
}

int init(lockstep_mpi_combine, lockstep_mpi_world* world) {
  while (std::getenv("FAKE_MPI_HANGS") != nullptr) std::this_thread::sleep_for(std::chrono::hours(1));
  *world = {};
  world->by_program = std::getenv("FAKE_MPI_BY_PROGRAM") != nullptr ? 1 : 0;
  world->threads = number("FAKE_MPI_THREADS", lockstep_mpi_funneled);
  world->size = 1;
  world->highest_tag = 100;
  std::snprintf(world->version, sizeof(world->version), "Fake MPI 1.0");
  return 0;
}

std::size_t bytes(std::size_t count, int dtype) {
  return count * lockstep::element_size(static_cast<lockstep::DType>(dtype));
}

int begin(lockstep_mpi_request** request) {
  *request = new lockstep_mpi_request;
  return 0;
}

int copy(lockstep_mpi_comm*, const void* input, void* output, std::size_t count, int dtype,
         lockstep_mpi_request** request) {
  std::memcpy(output, input, bytes(count, dtype));
  return begin(request);
}

lockstep_mpi_plugin make_table() {
  lockstep_mpi_plugin table{};
  table.abi_version = static_cast<std::uint32_t>(number("FAKE_MPI_VERSION", LOCKSTEP_MPI_ABI_VERSION));
  table.size = sizeof(table);
  table.name = "mpi";
  table.init = init;
  table.at_finalize = [](void (*)()) { return 0; };
  table.release = [] { return 0; };
  table.finalize = [] {
    std::puts("finalised");
    std::fflush(stdout);
    return 0;
  };
  table.error_text = [](int code, char* text, std::size_t size) { std::snprintf(text, size, "fake error %d", code); };
  table.copy_world = [](lockstep_mpi_comm** comm, lockstep_mpi_request** request) {
    *comm = new lockstep_mpi_comm;
    return begin(request);
  };
  table.create_group = [](lockstep_mpi_comm*, const int*, int, lockstep_mpi_comm** comm) {
    *comm = new lockstep_mpi_comm;
    return 0;
  };
  table.free_comm = [](lockstep_mpi_comm* comm) {
    delete comm;
    return 0;
  };
  table.all_reduce = [](lockstep_mpi_comm*, void*, std::size_t, int, int, lockstep_mpi_request** request) {
    return begin(request);
  };
  table.broadcast = [](lockstep_mpi_comm*, void*, std::size_t, int, int, lockstep_mpi_request** request) {
    return begin(request);
  };
  table.barrier = [](lockstep_mpi_comm*, lockstep_mpi_request**) { return 77; };  // fails
  table.all_gather = copy;
  table.test = [](lockstep_mpi_request* request, int* done, std::size_t* received) {
    delete request;
    *done = 1;
    *received = 0;
    return 0;
  };
  table.advance = [] { return 0; };
  return table;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) const lockstep_mpi_plugin* lockstep_mpi_plugin_entry() {
  static const lockstep_mpi_plugin table = make_table();
  return &table;
}
