// Which BLAS, LibTorch, MPI and NCCL the dynamic linker finds.
//
// A library is loaded in a process of its own, so that one that crashes, hangs or starts threads does not matter. Call
// before this process starts threads.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "doctor/finding.h"
#include "doctor/local/system.h"
#include "lockstep/base/deadline.h"

namespace lockstep::doctor {

struct Blas {
  std::string path = {};  // of libblas.so.3 after all links; empty: not found
  bool broken = false;    // it crashed or did not answer when it was asked
  double gigaflops = 0;   // of a product of two 512 x 512 matrices of floats, by all threads; 0: not measured
};

struct Libraries {
  Blas blas = {};
  std::vector<std::string> torch = {};  // paths of libtorch_cpu.so that were found
  std::vector<std::string> mpi = {};    // "Open MPI v4.1.4"
  std::string nccl = {};                // "2.18.5"; empty: not found
};
Libraries find_libraries(const System& system);

// Pure.
Finding judge_blas(const Blas& blas);
std::vector<Finding> judge_libraries(const Libraries& libraries);

// What `ask` returns, called in a child process; nothing if it crashes or takes longer.
std::optional<std::string> ask_in_child(const std::function<std::string()>& ask, Deadline deadline);

}  // namespace lockstep::doctor
