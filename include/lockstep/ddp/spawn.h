// Starts N local processes without a launcher.
//
//   int main() {
//     lockstep::spawn(4, [](int rank) {
//       lockstep::ProcessGroupScope job;
//       ...
//     });
//   }
//
// The processes are this program, started again with the same arguments: each runs main() up to the
// same call of spawn, calls the function there, and exits. (A fork would inherit locks and thread
// pools that no longer work.) So the code before spawn runs in every process, and the code after it
// runs only in the parent. A program may call spawn several times, one after the other.
#pragma once

#include <chrono>
#include <functional>
#include <string>

namespace lockstep {

struct SpawnOptions {
  // After the first failure: how long the other ranks have to end by themselves.
  std::chrono::milliseconds grace{std::chrono::seconds(5)};
};

// Runs `function(rank)` in `nprocs` processes with RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE,
// MASTER_ADDR and MASTER_PORT set, a secret of their own, and OMP_NUM_THREADS = cores / nprocs unless
// the user has set it. Blocks until all have ended. If one fails, the others are ended, and spawn throws
// Error, which names the rank that failed first, its exit code or signal, and the text of its exception.
// No process survives the parent.
void spawn(int nprocs, const std::function<void(int rank)>& function, const SpawnOptions& options = {});

}  // namespace lockstep
