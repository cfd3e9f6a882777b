// How much each rank sends to each other one in an all_to_all with parts of different sizes, as the sender and as the
// receiver have it.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/base/status.h"

namespace lockstep {

class SplitTable {
 public:
  explicit SplitTable(int ranks) : ranks_(static_cast<std::size_t>(ranks)), all_(2 * ranks_ * ranks_) {}

  // What a rank contributes: what it sends to each rank, then what it expects from each.
  static std::vector<std::int64_t> row(std::span<const std::int64_t> sent, std::span<const std::int64_t> expected);
  // The rows of all ranks, in rank order: to be filled by an all_gather.
  std::span<std::int64_t> rows() { return all_; }

  // Ok, or which rank expects something else than another one sends. `unit`: "bytes". `describe` names a rank. The
  // result is the same on all ranks.
  [[nodiscard]] Status check(const std::string& unit, const std::function<std::string(int)>& describe) const;
  bool all_equal() const;

 private:
  std::int64_t sent(std::size_t from, std::size_t to) const { return all_[from * 2 * ranks_ + to]; }
  std::int64_t expected(std::size_t from, std::size_t to) const { return all_[to * 2 * ranks_ + ranks_ + from]; }

  std::size_t ranks_;
  std::vector<std::int64_t> all_;
};

}  // namespace lockstep
