// `lockstep bench scale`: how forming a group, its memory, its idle costs, its collectives and the detection of a
// killed rank grow with the number of ranks, which are processes of this machine.
#pragma once

namespace lockstep::bench {

struct ScaleOptions {
  int min_ranks = 2;
  int max_ranks = 1024;    // doubles from min_ranks to this
  int ranks_per_host = 0;  // 0: all on one host; otherwise this machine counts as several, connected by TCP
  int idle_seconds = 3;
};

// Prints a Markdown table. Returns the exit code: 0; 1 after a failure; 2 for invalid options.
int run_scale_benchmark(const ScaleOptions& options);

}  // namespace lockstep::bench
