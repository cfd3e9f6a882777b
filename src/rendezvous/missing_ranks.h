// The error message about missing ranks.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <chrono>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/status.h"

namespace lockstep {

class MissingRanks {
 public:
  explicit MissingRanks(int world_size) : world_size_(world_size) {
    for (int rank = 0; rank < world_size; ++rank) silent_.insert(rank);
  }

  void add_present(int rank) { silent_.erase(rank); }
  // The rank announced itself, but has the problem `what`.
  void add_silent(int rank, std::string_view what) {
    silent_.erase(rank);
    remarks_.push_back(fmt::format("rank {} {}", rank, what));
  }
  bool empty() const { return silent_.empty() && remarks_.empty(); }

  // "after 5.0 s 2 of 4 ranks are missing at the store ...: rank 1 never announced itself, ..."
  Status error(std::chrono::duration<double> elapsed, std::string_view store) const {
    constexpr std::size_t kMaxNamed = 16;
    std::vector<std::string> all;
    for (const int rank : silent_) all.push_back(fmt::format("rank {} never announced itself", rank));
    all.insert(all.end(), remarks_.begin(), remarks_.end());
    const std::size_t count = all.size();
    if (count > kMaxNamed) {
      all.resize(kMaxNamed);
      all.push_back(fmt::format("and {} more", count - kMaxNamed));
    }
    return Status(StatusCode::timed_out,
                  fmt::format("after {:.1f} s {} of {} ranks are missing at {}: {}. Check their logs, and that "
                              "they were started with the same world size and master",
                              elapsed.count(), count, world_size_, store, fmt::join(all, ", ")));
  }

 private:
  const int world_size_;
  std::set<int> silent_;
  std::vector<std::string> remarks_;
};

// Two living processes claim one rank.
template <typename Record>
Status claimed_twice(const Record& first, const Record& second) {
  return Status(StatusCode::already_exists,
                fmt::format("two processes claim rank {}: pid {} on host {} and pid {} on host {}; give every process "
                            "its own rank",
                            first.rank, first.pid, first.host, second.pid, second.host));
}

}  // namespace lockstep
