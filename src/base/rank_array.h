// One value for each of a few ranks, for the time of one operation: no allocation for the usual number of ranks.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <span>
#include <vector>

namespace lockstep {

template <typename T>
class RankArray {
 public:
  explicit RankArray(std::integral auto size) : size_(static_cast<std::size_t>(size)) {
    if (size_ > few_.size()) many_.resize(size_);
  }
  T& operator[](std::integral auto rank) { return data()[rank]; }
  std::span<T> span() { return {data(), size_}; }
  std::span<T> first(std::size_t count) { return {data(), count}; }

 private:
  T* data() { return many_.empty() ? few_.data() : many_.data(); }

  std::size_t size_;
  std::array<T, 16> few_{};
  std::vector<T> many_;
};

}  // namespace lockstep
