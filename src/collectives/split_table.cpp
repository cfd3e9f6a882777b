#include "collectives/split_table.h"

#include <fmt/format.h>

#include <algorithm>

namespace lockstep {

std::vector<std::int64_t> SplitTable::row(std::span<const std::int64_t> sent, std::span<const std::int64_t> expected) {
  std::vector<std::int64_t> row(sent.begin(), sent.end());
  row.insert(row.end(), expected.begin(), expected.end());
  return row;
}

Status SplitTable::check(const std::string& unit, const std::function<std::string(int)>& describe) const {
  for (std::size_t from = 0; from < ranks_; ++from) {
    for (std::size_t to = 0; to < ranks_; ++to) {
      if (sent(from, to) == expected(from, to)) continue;
      return {StatusCode::invalid_argument,
              fmt::format("all_to_all: {} sends {} {} to {}, which expects {}; the input splits of the one must be the "
                          "output splits of the other",
                          describe(static_cast<int>(from)), sent(from, to), unit, describe(static_cast<int>(to)),
                          expected(from, to))};
    }
  }
  return {};
}

bool SplitTable::all_equal() const {
  return std::all_of(all_.begin(), all_.end(), [this](std::int64_t size) { return size == all_.front(); });
}

}  // namespace lockstep
