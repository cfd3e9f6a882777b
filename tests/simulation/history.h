// One simulated history of an elastic job: hosts, ranks, faults and their times, all from one seed.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace lockstep::simulation {

struct Outcome {
  std::string violation;  // empty: all invariants hold
  std::int64_t steps = 0;
  bool finished = false;
  std::uint64_t switches = 0;
  double virtual_seconds = 0;
  // What the source of chance would return next: it shows how often it was asked.
  std::uint64_t next_random = 0;
  friend bool operator==(const Outcome&, const Outcome&) = default;
};

struct HistoryOptions {
  bool verbose = false;       // prints a transcript on stderr
  bool rejects = true;        // whether links may answer packets with RST
  bool one_endpoint = false;  // launchers know only the first host's address at the start, and not all of them
};
// The variables with which a history's processes trust each other. Encryption takes most of the time of a history that
// has it, and decides nothing: one seed in sixteen has a secret, the others run without one.
inline std::map<std::string, std::string> protection_of(std::uint64_t seed) {
  if (seed % 16 != 0) return {{"LOCKSTEP_ALLOW_UNAUTHENTICATED", "1"}};
  return {{"LOCKSTEP_SECRET", "0123456789abcdef0123456789abcdef"}};
}

// One seed in seven makes a generation void while processes of the one before it are stopped (void_generation.h).
inline bool has_void_generation(std::uint64_t seed) { return seed % 7 == 0; }

Outcome run_history(std::uint64_t seed, const HistoryOptions& options = {});

}  // namespace lockstep::simulation
