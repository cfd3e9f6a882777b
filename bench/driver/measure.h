// `lockstep bench <collective>`: every engine in every round, in random order, at each size.
#pragma once

#include <string>
#include <vector>

#include "bench/driver/options.h"
#include "bench/driver/report.h"

namespace lockstep::bench {

// The measurements of one engine at one size.
struct Samples {
  std::vector<double> seconds = {};        // every timed operation
  std::vector<double> round_medians = {};  // one per round
  std::size_t wrong = 0;
  double cpu_seconds = 0;
  double wire_bytes = 0;       // sent by the host that sent most
  std::size_t operations = 0;  // that sent wire_bytes, the untimed ones included
};

// The row of an engine. `limit` and `peers` hold the round medians to compare it with.
Row make_row(const BenchOptions& options, int ranks, const Shape& shape, const std::string& engine,
             const std::string& memory, const Samples& samples, const std::vector<double>& limit,
             const std::map<std::string, std::vector<double>>& peers);

// Runs the whole benchmark: prints the table to stdout line by line and remarks to stderr, and writes
// options.json_file. Returns the exit code: 0; 1 after a failure or if a result of Lockstep was wrong;
// 2 for invalid options.
int run_benchmark(const BenchOptions& options);

}  // namespace lockstep::bench
