#include "lockstep/record/metrics.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <csignal>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "record/metric_names.h"
#include "record/record_memory.h"
#include "record/record_reader.h"
#include "record/recorder.h"
#include "record/step_clock.h"
#include "support/process_set.h"

namespace lockstep::record {
namespace {

using lockstep::testing::in_seconds;
using lockstep::testing::ProcessSet;
using lockstep::testing::start_ranks;
using ::testing::ElementsAre;

std::vector<RecordedMetric> logged(const std::string& name) {
  std::vector<RecordedMetric> metrics;
  for (auto& metric : read_record(Recorder::process().area()).metrics) {
    if (metric.name == name) metrics.push_back(metric);
  }
  return metrics;
}

std::vector<std::int64_t> steps_of(const std::string& name) {
  std::vector<std::int64_t> steps;
  for (const auto& metric : logged(name)) steps.push_back(metric.step);
  return steps;
}

// The training of this process has not begun, whichever tests ran before.
class Metrics : public ::testing::Test {
 protected:
  void SetUp() override { Recorder::process().set_step(0); }
};

TEST_F(Metrics, AreReadWithNameValueStepAndTime) {
  const auto before = static_cast<std::int64_t>(monotonic_ns());
  log_metric("loss", 0.25, 17);
  const auto metrics = logged("loss");
  ASSERT_EQ(metrics.size(), 1U);
  EXPECT_EQ(metrics[0].value, 0.25);
  EXPECT_EQ(metrics[0].step, 17);
  EXPECT_NEAR(static_cast<double>(metrics[0].time_ns), static_cast<double>(before), 1e9);
}

TEST_F(Metrics, LoggedTogetherHaveTheSameStepAndTime) {
  log_metrics({{"together/a", 1}, {"together/b", 2}}, -3);
  const auto a = logged("together/a");
  const auto b = logged("together/b");
  ASSERT_EQ(a.size(), 1U);
  ASSERT_EQ(b.size(), 1U);
  EXPECT_EQ(a[0].step, -3);
  EXPECT_EQ(b[0].step, -3);
  // One time, converted twice: each reading has a scale of its own.
  EXPECT_NEAR(static_cast<double>(a[0].time_ns), static_cast<double>(b[0].time_ns), 1000);
}

TEST_F(Metrics, HaveTheStepOfTheTraining) {
  StepClock clock;
  for (int step = 0; step < 3; ++step) {
    clock.step_ended();
    log_metric("step of the training", 1);
  }
  EXPECT_THAT(steps_of("step of the training"), ElementsAre(1, 2, 3));
}

TEST_F(Metrics, TwoModelsThatTrainTogetherCountAStepOnce) {
  StepClock generator;
  StepClock discriminator;
  for (int step = 0; step < 3; ++step) {
    generator.step_ended();
    discriminator.step_ended();
    log_metric("two models", 1);
  }
  EXPECT_THAT(steps_of("two models"), ElementsAre(1, 2, 3));
}

TEST_F(Metrics, ANewGenerationContinuesAtTheStepOfTheJob) {
  Recorder::process().set_step(1000);
  StepClock clock;
  clock.step_ended();
  log_metric("generation", 1);
  Recorder::process().set_step(1000);  // that step was dropped
  StepClock next;
  next.step_ended();
  log_metric("generation", 2);
  EXPECT_THAT(steps_of("generation"), ElementsAre(1001, 1001));
}

TEST_F(Metrics, WithoutATrainingLoopAreCountedByName) {
  log_metric("counted a", 1);
  log_metric("counted a", 1);
  log_metric("counted b", 1);
  EXPECT_THAT(steps_of("counted a"), ElementsAre(0, 1));
  EXPECT_THAT(steps_of("counted b"), ElementsAre(0));
}

TEST_F(Metrics, MayBeInfiniteOrNaN) {
  const double infinity = std::numeric_limits<double>::infinity();
  for (const double value : {std::nan(""), infinity, -infinity}) log_metric("not finite", value);
  const auto metrics = logged("not finite");
  ASSERT_EQ(metrics.size(), 3U);
  EXPECT_TRUE(std::isnan(metrics[0].value));
  EXPECT_EQ(metrics[1].value, infinity);
  EXPECT_EQ(metrics[2].value, -infinity);
}

TEST_F(Metrics, OfSeveralThreadsAreAllRecorded) {
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([] {
      for (int i = 0; i < 500; ++i) log_metric("threads " + std::to_string(i % 3), i, i);
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(logged("threads 0").size() + logged("threads 1").size() + logged("threads 2").size(), 2000U);
}

TEST_F(Metrics, AReaderGetsEachOnceAndCountsWhatWasOverwritten) {
  RecordReader reader(Recorder::process().area());
  RankRecord record;
  reader.read(record);
  const std::uint64_t lost = record.lost;
  record.metrics.clear();
  log_metric("incremental", 1);
  reader.read(record);
  reader.read(record);
  ASSERT_EQ(record.metrics.size(), 1U);
  record.metrics.clear();
  for (std::size_t i = 0; i < kMetrics + 5; ++i) log_metric("incremental", static_cast<double>(i));
  reader.read(record);
  EXPECT_EQ(record.metrics.size(), kMetrics);
  EXPECT_EQ(record.metrics.front().value, 5);
  EXPECT_EQ(record.lost - lost, 5U);
}

TEST_F(Metrics, ARecordThatIsNeverCompletedHidesOnlyItself) {
  RecordReader reader(Recorder::process().area());
  RankRecord record;
  reader.read(record);
  record.metrics.clear();
  Recorder::process().area().metrics.take();  // as a thread that was killed before it wrote
  log_metric("after it", 1);
  reader.read(record);
  reader.read(record);
  ASSERT_EQ(record.metrics.size(), 1U);
  EXPECT_EQ(record.metrics[0].name, "after it");
  for (std::size_t i = 0; i < kMetrics; ++i) log_metric("overwrites it", 1);
}

TEST(MetricNames, OddBytesAreReplaced) {
  EXPECT_EQ(stored_metric_name("train/loss"), "train/loss");
  EXPECT_EQ(stored_metric_name("Größe 損失 🙂"), "Größe 損失 🙂");
  EXPECT_EQ(stored_metric_name(""), "?");
  EXPECT_EQ(stored_metric_name(std::string_view("a\0b\nc\x7f", 6)), "a?b?c?");
  EXPECT_EQ(stored_metric_name("\xff\xc0\xaf"), "???");
  EXPECT_EQ(stored_metric_name("\xed\xa0\x80"), "???");       // a surrogate
  EXPECT_EQ(stored_metric_name("\xf4\x90\x80\x80"), "????");  // above U+10FFFF
  EXPECT_EQ(stored_metric_name("\xc2\x85"), "?");             // a control character
  EXPECT_EQ(stored_metric_name("cut \xe6\x90"), "cut ??");
}

TEST(MetricNames, LongNamesAreCutBetweenCharacters) {
  const std::string sixty_two(62, 'x');
  EXPECT_EQ(stored_metric_name(sixty_two + "ab"), sixty_two + "a");
  EXPECT_EQ(stored_metric_name(sixty_two + "ß"), sixty_two);
}

TEST(MetricNames, ThereAreAsManyAsFit) {
  static MetricName table[kMetricNames];
  for (std::size_t i = 0; i < kMetricNames; ++i) {
    const auto place = find_metric_name(table, "name " + std::to_string(i));
    ASSERT_TRUE(place) << i;
    EXPECT_EQ(find_metric_name(table, "name " + std::to_string(i)), place);
  }
  EXPECT_FALSE(find_metric_name(table, "one more"));
}

// A process of its own: the names stay.
LOCKSTEP_PROCESS_ROLE(rank_with_metrics) {
  Recorder::process().set_world(2, 4, 3);
  for (std::size_t i = 0; i < kMetricNames + 2; ++i) log_metric("name " + std::to_string(i), 1);
  log_metric("name 0", 7.5, 12);
  ::raise(SIGKILL);
  return 0;
}

TEST(MetricsOfAProcess, OutliveKillNine) {
  auto memory = RecordMemory::create();
  ASSERT_TRUE(memory.ok());
  ::fcntl((*memory)->fd(), F_SETFD, 0);
  ProcessSet process = start_ranks(1, "rank_with_metrics", {.environment = {{kMemoryVariable, (*memory)->variable()}}});
  ASSERT_TRUE(process.wait_all(in_seconds(20))) << process.report();
  EXPECT_EQ(process.exit_status(0)->signal, SIGKILL);
  const RankRecord record = read_record((*memory)->area());
  ASSERT_EQ(record.metrics.size(), kMetricNames + 1);
  const RecordedMetric& last = record.metrics.back();
  EXPECT_EQ(last.name, "name 0");
  EXPECT_EQ(last.value, 7.5);
  EXPECT_EQ(last.step, 12);
  EXPECT_EQ(last.rank, 2);
  EXPECT_EQ(last.generation, 3U);
  EXPECT_EQ(record.metrics_not_recorded, 2U);
  EXPECT_THAT(process.report(), ::testing::HasSubstr("metric 'name 128' is not recorded"));
}

}  // namespace
}  // namespace lockstep::record
