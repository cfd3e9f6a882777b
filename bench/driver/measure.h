// `lockstep bench <collective>`: every engine in every round, in random order, at each size.
#pragma once

#include <string>
#include <vector>

#include "bench/driver/options.h"
#include "bench/driver/report.h"

namespace lockstep::bench {

// What one engine did at one size, before it is compared with others.
struct Samples {
  std::vector<double> seconds = {};        // every timed operation
  std::vector<double> round_medians = {};  // one per round
  std::size_t wrong = 0;
  double cpu_seconds = 0;
  double wire_bytes = 0;       // sent by the host that sent most
  std::size_t operations = 0;  // that wire_bytes are of; the untimed ones too
};

// The row of an engine. `limit` and `peers` hold the round medians that it is compared with.
Row make_row(const BenchOptions& options, int ranks, const Shape& shape, const std::string& engine,
             const std::string& memory, const Samples& samples, const std::vector<double>& limit,
             const std::map<std::string, std::vector<double>>& peers);

// Runs the whole benchmark: the table to stdout as it goes, remarks to stderr, JSON to the file
// asked for. Returns the exit code: 0; 1 after a failure or when a result of Lockstep was wrong;
// 2 for options that make no sense.
int run_benchmark(const BenchOptions& options);

}  // namespace lockstep::bench
