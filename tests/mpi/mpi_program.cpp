// A program that starts and ends MPI itself, and uses it beside a group. Linked with MPI.
#include <fmt/format.h>
#include <mpi.h>

#include <cstdio>
#include <string>
#include <thread>

#include "mpi/mpi_communicator.h"

namespace {

using lockstep::mpi::MpiCommunicator;

void print_line(const std::string& text) {
  const std::string line = text + "\n";
  std::fwrite(line.data(), 1, line.size(), stdout);
  std::fflush(stdout);
}

lockstep::Result<std::shared_ptr<MpiCommunicator>> join() {
  return MpiCommunicator::create_world("mpi",
                                       {.init_timeout = std::chrono::seconds(30), .timeout = std::chrono::seconds(30)});
}

double sum_over(MpiCommunicator& world) {
  double sum = 1;
  world.submit(lockstep::Operation::all_reduce(lockstep::Buffer(std::span(&sum, 1)))).wait();
  return sum;
}

// Uses MPI between, beside and after groups.
int beside(int size) {
  for (int round = 0; round < 3; ++round) {
    auto world = join();
    if (!world.ok()) return print_line(world.status().to_string()), 1;
    double mine = 1;
    double theirs = 0;
    const lockstep::Work work = (*world)->submit(lockstep::Operation::barrier());
    MPI_Allreduce(&mine, &theirs, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    work.wait();
    if (theirs != size || sum_over(**world) != size) return 1;
  }
  print_line("both agree");
  return MPI_Finalize();
}

// Finalises MPI while a group exists.
int finalize_first(int size) {
  auto world = join();
  if (!world.ok() || sum_over(**world) != size) return 1;
  MPI_Barrier(MPI_COMM_WORLD);
  // MPICH 4.0 stops locking when MPI_Finalize starts, and aborts if another thread is in MPI at that moment: so not
  // while ours may still be polling.
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  MPI_Finalize();
  const lockstep::Status later =
      (*world)->submit(lockstep::Operation::barrier()).wait(lockstep::Deadline::after(std::chrono::seconds(10)));
  print_line(later.to_string());
  return later.ok() ? 1 : 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string part = argc > 1 ? argv[1] : "";
  int given = 0;
  MPI_Init_thread(&argc, &argv, part == "funneled" ? MPI_THREAD_FUNNELED : MPI_THREAD_MULTIPLE, &given);
  int size = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  try {
    if (part == "beside") return beside(size);
    if (part == "finalize_first") return finalize_first(size);
    if (part == "funneled") {
      print_line(join().status().to_string());
      return MPI_Finalize();
    }
  } catch (const std::exception& error) {
    print_line(error.what());
  }
  return 1;
}
