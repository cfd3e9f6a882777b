#include "launch/report/job_dump.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/printable.h"
#include "record/running_jobs.h"

namespace lockstep::launch {
namespace {

// Names of threads and functions are the rank's, and may contain control characters.
std::string indented(const std::string& text) {
  std::string result;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    result += "    " + printable_line(std::string_view(text).substr(begin, end - begin)) + "\n";
    begin = end + 1;
  }
  return result;
}

}  // namespace

std::vector<RankActivity> describe_ranks(const std::vector<record::RankRecord>& ranks, std::int64_t now_ns) {
  std::set<int> missing;
  for (const auto& waiting : record::find_waiting(ranks, now_ns)) {
    missing.insert(waiting.missing.begin(), waiting.missing.end());
  }
  std::vector<RankActivity> described;
  for (const auto& rank : ranks) {
    const std::string generation = rank.generation > 0 ? fmt::format(", generation {}", rank.generation) : "";
    described.push_back({.rank = rank.rank,
                         .pid = rank.pid,
                         .text = fmt::format("rank {} ({}, pid {}{}): {}", rank.rank, rank.host, rank.pid, generation,
                                             record::describe_activity(rank, now_ns))});
  }
  std::stable_sort(described.begin(), described.end(), [&](const RankActivity& a, const RankActivity& b) {
    return missing.count(a.rank) > missing.count(b.rank);
  });
  return described;
}

std::string dump_rank(const RankActivity& rank, const StackOptions& options) {
  return fmt::format("{}\n{}{}", rank.text, indented(describe_threads(rank.pid)),
                     indented(take_stacks(rank.pid, options)));
}

}  // namespace lockstep::launch
