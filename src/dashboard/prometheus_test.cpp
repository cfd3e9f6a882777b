#include "dashboard/prometheus.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

namespace lockstep::dashboard {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

JobState job() {
  JobState state;
  state.facts = {.run_id = "a \"quoted\\ id\nof two lines", .host = "node7", .ranks = 2, .started = 1.7e9};
  state.world_size = 2;
  state.failures = 3;
  for (int i = 0; i < 2; ++i) {
    RankState rank{.name = "rank " + std::to_string(i), .rank = i, .local_rank = i, .host = "node7", .pid = 40 + i};
    rank.condition = i == 0 ? RankCondition::running : RankCondition::failed;
    rank.counted_steps = 1200;
    rank.counted_own[0] = 1.5;
    rank.usage = ProcessUsage{.cpu_seconds = 12.25, .resident_bytes = 1 << 20, .threads = 3};
    state.ranks.push_back(rank);
  }
  state.curves.emplace_back("train/loss", "step").add({.tick = 1, .x = 5, .y = 0.25});
  state.stragglers.straggler = Straggler{.rank = 1, .cost_seconds = 0.05, .speedup = 1.4, .phase = PhaseKind::data};
  return state;
}

TEST(Prometheus, HasJobRanksAndStraggler) {
  const std::string text = prometheus_text(job());
  EXPECT_THAT(
      text,
      HasSubstr("lockstep_job_info{run_id=\"a \\\"quoted\\\\ id\\nof two lines\",host=\"node7\",node=\"0\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("\nlockstep_job_rank_failures_total 3\n"));
  EXPECT_THAT(text, HasSubstr("\nlockstep_rank_up{name=\"rank 0\",host=\"node7\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("\nlockstep_rank_up{name=\"rank 1\",host=\"node7\"} 0\n"));
  EXPECT_THAT(text, HasSubstr("\nlockstep_rank_steps_total{name=\"rank 0\",host=\"node7\"} 1200\n"));
  EXPECT_THAT(
      text,
      HasSubstr("\nlockstep_rank_own_seconds_total{name=\"rank 0\",host=\"node7\",phase=\"data loading\"} 1.5\n"));
  EXPECT_THAT(text, HasSubstr("\nlockstep_straggler_cost_seconds{rank=\"1\",phase=\"data loading\"} 0.05\n"));
  EXPECT_THAT(text, HasSubstr("\nlockstep_training_metric{metric=\"train/loss\"} 0.25\n"));
  EXPECT_THAT(text, Not(HasSubstr("phase=\"forward\""))) << "it has no time";
}

TEST(Prometheus, ReplacesTextThatIsNotUtf8) {
  JobState state = job();
  state.facts.run_id = "m\xfcll \xc3\xbc";
  EXPECT_THAT(prometheus_text(state), HasSubstr("run_id=\"m\xEF\xBF\xBDll \xc3\xbc\""));
}

// A curve that is full keeps only some of its points.
TEST(Prometheus, HasTheLatestValueOfAMetric) {
  JobState state = job();
  Curve& loss = state.curves[0];
  for (int step = 6; step <= 5000; ++step) loss.add({.tick = 1, .x = double(step), .y = double(step)});
  EXPECT_THAT(prometheus_text(state), HasSubstr("\nlockstep_training_metric{metric=\"train/loss\"} 5000\n"));
  loss.rewind(5000, 2);
  loss.add({.tick = 2, .x = 5000, .y = 1});
  EXPECT_THAT(prometheus_text(state), HasSubstr("\nlockstep_training_metric{metric=\"train/loss\"} 1\n"));
}

TEST(Prometheus, IsAcceptedByPromtool) {
  if (std::system("command -v promtool >/dev/null 2>&1") != 0)
    GTEST_SKIP() << "promtool is missing (Debian: apt-get install prometheus)";
  for (const JobState& state : {job(), JobState()}) {
    std::FILE* const promtool = ::popen("promtool check metrics >&2", "w");
    ASSERT_NE(promtool, nullptr);
    const std::string text = prometheus_text(state);
    std::fwrite(text.data(), 1, text.size(), promtool);
    const int status = ::pclose(promtool);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << text;
  }
}

}  // namespace
}  // namespace lockstep::dashboard
