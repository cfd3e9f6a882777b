// One value for each rank of a group, or of a host: a vector whose index is a rank.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

namespace lockstep {

// Not for T = bool, because std::vector<bool> holds no bools.
template <typename T>
class RankVector {
 public:
  RankVector() = default;
  explicit RankVector(int size) : values_(static_cast<std::size_t>(size)) {}

  int size() const { return static_cast<int>(values_.size()); }
  T& operator[](int rank) { return values_[static_cast<std::size_t>(rank)]; }
  const T& operator[](int rank) const { return values_[static_cast<std::size_t>(rank)]; }
  // The value of the next rank.
  void push_back(T value) { values_.push_back(std::move(value)); }

  auto begin() { return values_.begin(); }
  auto end() { return values_.end(); }
  auto begin() const { return values_.begin(); }
  auto end() const { return values_.end(); }

 private:
  std::vector<T> values_;
};

}  // namespace lockstep
