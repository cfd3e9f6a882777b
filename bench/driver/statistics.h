// The arithmetic of a benchmark: pure functions over samples.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "bench/worker/operation.h"

namespace lockstep::bench {

// The smallest sample that at least `fraction` of all samples do not exceed (nearest rank).
// `samples` is not empty; fraction in (0, 1].
double percentile(std::vector<double> samples, double fraction);
// For an even number of samples: the mean of the two in the middle.
double median(std::vector<double> samples);

// A ratio measured once per round.
struct RatioSummary {
  double median = 0;
  double low = 0;   // the smallest of any round
  double high = 0;  // the largest
};
// Element i of both is round i: numerator[i] / denominator[i]. Nothing if there is no round.
std::optional<RatioSummary> summarize_ratios(const std::vector<double>& numerators,
                                             const std::vector<double>& denominators);

// The time of each operation: that of the slowest rank. All ranks must have the same number of operations.
std::vector<double> slowest_rank(const std::vector<std::vector<double>>& seconds_by_rank);
// The number of operations whose result was not bit-identical on all ranks.
std::size_t count_differences(const std::vector<std::vector<std::uint64_t>>& digests_by_rank);

// GB/s (10^9), as nccl-tests defines them.
double algorithm_bandwidth(std::size_t bytes, double seconds);
double bus_bandwidth_factor(Collective collective, int ranks);

// The least time that `bytes` can take between hosts: the latency, plus the time to send what each host must send at
// the goodput of the link (bytes per second).
double link_limit(Collective collective, int hosts, std::size_t bytes, double latency, double goodput);
// The bytes that each host must send; for a broadcast, those of the host that must send most.
double wire_bytes_needed(Collective collective, int hosts, std::size_t bytes);

}  // namespace lockstep::bench
