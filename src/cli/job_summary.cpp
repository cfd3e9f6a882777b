#include "cli/job_summary.h"

#include <fmt/format.h>

#include <algorithm>

#include "record/straggler.h"
#include "record/ticks.h"

namespace lockstep::cli {
namespace {

constexpr std::size_t kLatestSteps = 20;

const record::RankRecord* most_advanced(const std::vector<record::RankRecord>& ranks) {
  const record::RankRecord* found = nullptr;
  for (const auto& rank : ranks) {
    if (rank.steps.empty()) continue;
    if (found == nullptr || rank.steps.back().number > found->steps.back().number) found = &rank;
  }
  return found;
}

}  // namespace

std::int64_t now_ns() { return static_cast<std::int64_t>(record::monotonic_ns()); }

StragglerReport compare_ranks(const std::vector<record::RankRecord>& ranks) {
  std::vector<record::RankSteps> compared;
  for (const auto& rank : ranks) {
    record::RankSteps steps{.rank = rank.rank, .host = rank.host};
    for (const auto& step : rank.steps) {
      if (step.model == rank.steps.back().model) steps.steps.push_back(step);
    }
    compared.push_back(std::move(steps));
  }
  return record::find_straggler(compared);
}

std::uint64_t latest_step(const std::vector<record::RankRecord>& ranks) {
  const auto* const rank = most_advanced(ranks);
  return rank == nullptr ? 0 : rank->steps.back().number;
}

double median_step_seconds(const std::vector<record::RankRecord>& ranks) {
  const auto* const rank = most_advanced(ranks);
  if (rank == nullptr || rank->steps.size() < 3) return 0;
  std::vector<double> seconds;
  for (std::size_t i = rank->steps.size() - std::min(kLatestSteps, rank->steps.size()); i < rank->steps.size(); ++i) {
    seconds.push_back(rank->steps[i].total);
  }
  const auto middle = seconds.begin() + static_cast<std::ptrdiff_t>(seconds.size() / 2);
  std::nth_element(seconds.begin(), middle, seconds.end());
  return *middle;
}

std::string progress_of(const std::vector<record::RankRecord>& ranks) {
  const std::uint64_t step = latest_step(ranks);
  if (step == 0) return "no step yet";
  const double seconds = median_step_seconds(ranks);
  if (seconds <= 0) return fmt::format("step {}", step);
  return fmt::format("step {}, {:.3g} steps/s", step, 1 / seconds);
}

}  // namespace lockstep::cli
