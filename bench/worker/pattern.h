// Generates the input data of a benchmark and checks every result.
//
// Element i of rank r's input in iteration k is entry (i + 31 k) mod kPeriod of r's table of random
// values. The period is prime, so that a chunk in the wrong place, a missing chunk, or the result
// of an earlier iteration does not pass by chance. The tables stay in the cache, so that generating
// the data costs no more than writing it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "lockstep/collectives/types.h"

namespace lockstep::bench {

class Pattern {
 public:
  static constexpr std::size_t kPeriod = 8191;

  Pattern(DType dtype, int ranks);

  // Writes elements [first, first + count) of rank's input.
  void fill(void* out, std::size_t first, std::size_t count, int rank, std::uint64_t iteration) const;
  // The number of elements of `data` that differ from elements [first, first + count) of rank's input.
  std::uint64_t wrong_copies(const void* data, std::size_t first, std::size_t count, int rank,
                             std::uint64_t iteration) const;
  // The number of elements of `data` that are not the sum over all ranks of elements [first, first + count),
  // within the rounding error of any order. Integers must be exact.
  std::uint64_t wrong_sums(const void* data, std::size_t first, std::size_t count, std::uint64_t iteration) const;

  DType dtype() const { return dtype_; }
  int ranks() const { return static_cast<int>(tables_.size()); }

 private:
  DType dtype_;
  std::size_t element_;
  std::vector<std::vector<std::byte>> tables_;  // per rank, kPeriod elements
  std::vector<double> sums_;                    // kPeriod
  std::vector<std::byte> rounded_sums_;         // the same as elements
  double tolerance_ = 0;
};

// A value as an element, rounded to nearest even, and back. Exposed for tests.
void encode(DType dtype, double value, std::byte* out);
double decode(DType dtype, const std::byte* element);

// A hash: differs, except by chance, if any bit differs.
std::uint64_t digest(const void* data, std::size_t bytes);

}  // namespace lockstep::bench
