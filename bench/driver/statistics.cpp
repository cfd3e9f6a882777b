#include "bench/driver/statistics.h"

#include <algorithm>
#include <cassert>
#include <cmath>

namespace lockstep::bench {

double percentile(std::vector<double> samples, double fraction) {
  assert(!samples.empty());
  std::sort(samples.begin(), samples.end());
  const auto rank = static_cast<std::size_t>(std::ceil(fraction * static_cast<double>(samples.size())));
  return samples[std::clamp<std::size_t>(rank, 1, samples.size()) - 1];
}

double median(std::vector<double> samples) {
  assert(!samples.empty());
  std::sort(samples.begin(), samples.end());
  const std::size_t middle = samples.size() / 2;
  return samples.size() % 2 == 1 ? samples[middle] : (samples[middle - 1] + samples[middle]) / 2;
}

std::optional<RatioSummary> summarize_ratios(const std::vector<double>& numerators,
                                             const std::vector<double>& denominators) {
  std::vector<double> ratios;
  for (std::size_t i = 0; i < std::min(numerators.size(), denominators.size()); ++i) {
    if (denominators[i] > 0) ratios.push_back(numerators[i] / denominators[i]);
  }
  if (ratios.empty()) return std::nullopt;
  const auto [low, high] = std::minmax_element(ratios.begin(), ratios.end());
  return RatioSummary{median(ratios), *low, *high};
}

std::vector<double> slowest_rank(const std::vector<std::vector<double>>& seconds_by_rank) {
  std::vector<double> slowest = seconds_by_rank.at(0);
  for (const auto& seconds : seconds_by_rank) {
    for (std::size_t i = 0; i < slowest.size(); ++i) slowest[i] = std::max(slowest[i], seconds.at(i));
  }
  return slowest;
}

std::size_t count_differences(const std::vector<std::vector<std::uint64_t>>& digests_by_rank) {
  const std::vector<std::uint64_t>& first = digests_by_rank.at(0);
  std::size_t differences = 0;
  for (std::size_t i = 0; i < first.size(); ++i) {
    differences += !std::all_of(digests_by_rank.begin(), digests_by_rank.end(),
                                [&](const auto& digests) { return digests.at(i) == first[i]; });
  }
  return differences;
}

double algorithm_bandwidth(std::size_t bytes, double seconds) {
  return seconds > 0 ? static_cast<double>(bytes) * 1e-9 / seconds : 0;
}

double bus_bandwidth_factor(Collective collective, int ranks) {
  const double n = ranks;
  switch (collective) {
    case Collective::all_reduce: return 2 * (n - 1) / n;
    case Collective::all_gather:
    case Collective::reduce_scatter: return (n - 1) / n;
    case Collective::broadcast: return 1;
    case Collective::barrier: return 0;
  }
  return 0;
}

double wire_bytes_needed(Collective collective, int hosts, std::size_t bytes) {
  return bus_bandwidth_factor(collective, hosts) * static_cast<double>(bytes);
}

double link_limit(Collective collective, int hosts, std::size_t bytes, double latency, double goodput) {
  return latency + wire_bytes_needed(collective, hosts, bytes) / goodput;
}

}  // namespace lockstep::bench
