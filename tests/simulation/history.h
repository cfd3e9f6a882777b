// One simulated history of an elastic job: hosts, ranks, faults and their times, all from one seed.
#pragma once

#include <cstdint>
#include <string>

namespace lockstep::simulation {

struct Outcome {
  std::string violation;  // empty: all invariants hold
  std::int64_t steps = 0;
  bool finished = false;
  std::uint64_t switches = 0;
  double virtual_seconds = 0;
};

struct HistoryOptions {
  bool verbose = false;  // prints a transcript on stderr
  bool rejects = true;   // whether links may answer packets with RST
};
Outcome run_history(std::uint64_t seed, const HistoryOptions& options = {});

}  // namespace lockstep::simulation
