#include "dashboard/job_sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "record/ticks.h"

namespace lockstep::dashboard {
namespace {

// Memory as a rank would use it, which has recorded nothing but its pid.
std::shared_ptr<const record::RecordMemory> used_memory() {
  auto memory = record::RecordMemory::create();
  EXPECT_TRUE(memory.ok()) << memory.status().message();
  std::shared_ptr<record::RecordMemory> shared = *std::move(memory);
  auto& area = const_cast<record::RecordArea&>(shared->area());
  const auto now = record::ClockReading::now();
  area.start_ticks.store(now.ticks);
  area.start_monotonic_ns.store(now.monotonic_ns - 1'000'000'000);
  area.pid.store(::getpid());
  return shared;
}

TEST(JobSampler, ReleasesTheMemoryOfARankThatHasEnded) {
  JobSampler sampler({.ranks = 1});
  auto memory = used_memory();
  const std::weak_ptr<const record::RecordMemory> watched = memory;
  sampler.rank_started({.name = "rank 0", .rank = 0, .pid = ::getpid(), .memory = std::move(memory)});
  ASSERT_EQ(sampler.sample().ranks.size(), 1U);
  ASSERT_TRUE(sampler.state().ranks[0].usage);
  EXPECT_GT(sampler.state().ranks[0].usage->resident_bytes, 0U);
  EXPECT_FALSE(watched.expired());
  sampler.rank_ended(::getpid(), "signal 9 (SIGKILL)", false);
  sampler.sample();
  EXPECT_TRUE(watched.expired());
  EXPECT_EQ(sampler.state().ranks[0].usage->resident_bytes, 0U) << "it has no memory any more";
  EXPECT_EQ(sampler.state().ranks[0].end, "signal 9 (SIGKILL)");
}

// The kernel gives the number of a process that has ended to a later one.
TEST(JobSampler, TellsProcessesWithTheSamePidApart) {
  JobSampler sampler({.ranks = 2});
  sampler.rank_started({.name = "rank 0", .rank = 0, .local_rank = 0, .pid = 77, .memory = nullptr});
  sampler.rank_ended(77, "exit code 3", false);
  sampler.rank_started({.name = "rank 1", .rank = 1, .local_rank = 1, .pid = 77, .memory = nullptr});
  sampler.rank_ended(77, "", false);
  const JobState& state = sampler.sample();
  EXPECT_EQ(state.ranks[0].condition, RankCondition::failed);
  EXPECT_EQ(state.ranks[1].condition, RankCondition::finished);
  EXPECT_EQ(state.failures, 1U);
}

TEST(JobSampler, KeepsAMetricCalledLikeItsOwnCurveApart) {
  JobSampler sampler({.ranks = 1});
  auto memory = used_memory();
  auto& area = const_cast<record::RecordArea&>(memory->area());
  const auto name = record::find_metric_name(area.metric_names, kSpeedCurve);
  ASSERT_TRUE(name);
  const std::uint64_t now = record::now_ticks();
  for (int step = 1; step <= 9; ++step) {
    area.metrics.add({.ticks = now, .step = step, .value = 1e6, .name = *name});
    area.steps.add({.number = std::uint64_t(step), .end = now + std::uint64_t(step) * 100'000, .model = 1});
  }
  sampler.rank_started({.name = "rank 0", .rank = 0, .pid = ::getpid(), .memory = std::move(memory)});
  for (int i = 0; i < 4; ++i) sampler.sample();
  ASSERT_EQ(sampler.state().curves.size(), 2U);
  for (const Curve& curve : sampler.state().curves) {
    for (const auto& point : curve.points()) EXPECT_EQ(point.y == 1e6, curve.x_name() == "step");
  }
}

}  // namespace
}  // namespace lockstep::dashboard
