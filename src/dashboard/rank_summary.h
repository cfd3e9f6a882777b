// What one rank's record means for the dashboard. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "dashboard/job_state.h"
#include "record/record_reader.h"

namespace lockstep::dashboard {

// The latest steps that averages and comparisons use.
inline constexpr std::size_t kRecentSteps = 48;

// The recent steps of the model that took the last one, oldest first. (A process may train several models.)
std::vector<record::RecordedStep> recent_steps(const std::vector<record::RecordedStep>& steps);
StepSplit split_of(const std::vector<record::RecordedStep>& steps);

// Sets what `record` shows of a rank's activity; all but its identity, counters and usage. `now_ns`: CLOCK_MONOTONIC.
void describe_rank(RankState& rank, const record::RankRecord& record, std::int64_t now_ns);

// Steps per second over the steps that ended in the last `window_ns`, or since the last one if the next one is overdue;
// 0 if there are fewer than two.
double step_rate(const std::vector<record::RecordedStep>& steps, std::int64_t now_ns, std::int64_t window_ns);

}  // namespace lockstep::dashboard
