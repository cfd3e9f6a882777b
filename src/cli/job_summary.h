// What the commands that look at a running job have in common.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/record/straggler.h"
#include "record/record_reader.h"

namespace lockstep::cli {

std::int64_t now_ns();  // CLOCK_MONOTONIC

// Compares the ranks in the steps of the model that was trained last.
StragglerReport compare_ranks(const std::vector<record::RankRecord>& ranks);
// The latest step of all ranks; 0: none.
std::uint64_t latest_step(const std::vector<record::RankRecord>& ranks);
// The median of the latest steps of the rank that has the latest; 0: too few.
double median_step_seconds(const std::vector<record::RankRecord>& ranks);
// "step 1204, 14.7 steps/s", or "no step yet".
std::string progress_of(const std::vector<record::RankRecord>& ranks);

}  // namespace lockstep::cli
