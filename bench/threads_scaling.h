// `lockstep bench threads`: how the time of an all-reduce between threads of one process grows with their number.
#pragma once

namespace lockstep::bench {

struct ThreadsOptions {
  int max_ranks = 16;  // 2, 4, 8, ... up to this
  int rounds = 5;
};

// Prints a Markdown table: time, and CPU seconds of all ranks per GB of buffer, at 4 KiB and at
// 25 MiB of registered memory. Returns the exit code: 0; 1 after a failure or a wrong result;
// 2 for invalid options.
int run_threads_scaling(const ThreadsOptions& options);

}  // namespace lockstep::bench
