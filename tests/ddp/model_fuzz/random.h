// Numbers from a seed: splitmix64.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <iterator>

namespace lockstep::fuzz {

class Random {
 public:
  // Mixed, so that neighbouring seeds have nothing in common.
  explicit Random(std::uint64_t seed) : state_(mixed(seed)) {}
  std::uint64_t next() { return mixed(state_ += 0x9e3779b97f4a7c15U); }
  // From 0 to n - 1.
  int below(int n) { return static_cast<int>(next() % static_cast<std::uint64_t>(n)); }
  int between(int low, int high) { return low + below(high - low + 1); }
  bool chance(int percent) { return below(100) < percent; }
  template <typename T>
  T pick(std::initializer_list<T> values) {
    return *std::next(values.begin(), below(static_cast<int>(values.size())));
  }

 private:
  static std::uint64_t mixed(std::uint64_t z) {
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U + 0x2545f4914f6cdd1dU;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
    return z ^ (z >> 31);
  }

  std::uint64_t state_;
};

}  // namespace lockstep::fuzz
