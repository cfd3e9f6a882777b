// The only source of chance in a simulated history: everything follows from the seed. splitmix64.
#pragma once

#include <cstdint>

namespace lockstep::simulation {

class Random {
 public:
  // The first number of each seed scatters the seeds: otherwise that of n + 1 would be that of n, one number later.
  explicit Random(std::uint64_t seed) : state_(seed) { state_ = next(); }

  std::uint64_t next() {
    std::uint64_t z = (state_ += 0x9E3779B97F4A7C15ULL);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
    return z ^ (z >> 31);
  }
  // In [0, limit).
  std::int64_t below(std::int64_t limit) {
    return static_cast<std::int64_t>(next() % static_cast<std::uint64_t>(limit));
  }
  // In [low, high].
  std::int64_t between(std::int64_t low, std::int64_t high) { return low + below(high - low + 1); }
  bool one_in(std::int64_t n) { return below(n) == 0; }

 private:
  std::uint64_t state_;
};

}  // namespace lockstep::simulation
