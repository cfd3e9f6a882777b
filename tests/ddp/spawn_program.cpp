// Run by spawn_test: what it does is its first argument.
#include <sys/types.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <iostream>
#include <stdexcept>

#include "lockstep/ddp/collectives.h"
#include "lockstep/ddp/init.h"
#include "lockstep/ddp/spawn.h"

namespace {

void sum(int rank) {
  lockstep::ProcessGroupScope job;
  at::Tensor tensor = at::full({4}, rank + 1.0);
  lockstep::all_reduce(tensor);
  if (rank == 0) std::cout << "sum " << tensor[0].item<double>() << " of " << job.world_size() << std::endl;
}

void fail_on_one(int rank) {
  lockstep::ProcessGroupScope job;
  if (rank == 1) throw std::runtime_error("the disk is on fire");
  lockstep::barrier();
}

void die(int rank) {
  if (rank == 2) std::raise(SIGSEGV);
  while (true) ::pause();  // never ends by itself
}

// More than a pipe takes at once.
void fail_at_length(int rank, std::size_t bytes) {
  if (rank == 1) throw std::runtime_error("first words " + std::string(bytes, '.') + " last words");
}

// Dies without an exception, while a process that it forked still holds its descriptors.
void die_before_a_child(int) {
  const pid_t program = ::getppid();
  if (::fork() == 0) {
    for (const int fd : {0, 1, 2}) ::close(fd);
    for (int i = 0; i < 12000 && ::kill(program, 0) == 0; ++i) ::usleep(10'000);
    ::_exit(0);
  }
  std::raise(SIGKILL);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "";
  try {
    if (what == "sum") {
      lockstep::spawn(3, sum);
      std::cout << "again" << std::endl;
      lockstep::spawn(2, sum);
    } else if (what == "throw") {
      lockstep::spawn(3, fail_on_one);
    } else if (what == "die") {
      lockstep::spawn(3, die, {.grace = std::chrono::milliseconds(200)});
    } else if (what == "throw at length") {
      lockstep::spawn(2, [](int rank) { fail_at_length(rank, std::size_t{200} << 10); });
    } else if (what == "throw without end") {
      lockstep::spawn(2, [](int rank) { fail_at_length(rank, std::size_t{8} << 20); });
    } else if (what == "die before a child") {
      lockstep::spawn(1, die_before_a_child);
    } else if (what == "nested") {
      lockstep::spawn(1, [](int) { lockstep::spawn(1, sum); });
    } else {
      lockstep::spawn(0, sum);
    }
  } catch (const std::exception& error) {
    std::cout << "caught: " << error.what() << std::endl;
    return 3;
  }
  return 0;
}
