#include "record/step_clock.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "record/record_reader.h"

namespace lockstep::record {
namespace {

void pass(int milliseconds) { std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds)); }

double own(const RecordedStep& step, PhaseKind kind) { return step.own[static_cast<std::size_t>(kind)]; }

void run_step(StepClock& clock) {
  {
    const Phase phase(PhaseKind::data);
    pass(10);
  }
  pass(5);  // unmarked
  clock.forward_began();
  pass(20);
  clock.forward_ended();
  pass(10);
  clock.bucket_launched(0, 100);
  pass(30);
  clock.bucket_launched(1, 200);
  clock.bucket_reduced(0);
  clock.gradients_complete();
  pass(10);
  clock.bucket_reduced(1);
  clock.wait_ended();
  clock.step_ended();
}

TEST(StepClock, DividesAStepIntoItsParts) {
  StepClock clock;
  run_step(clock);
  run_step(clock);
  const auto steps = recent_steps(Recorder::process().area(), clock.model(), 10);
  ASSERT_EQ(steps.size(), 1U) << "the beginning of the first step is unknown";
  const RecordedStep& step = steps[0];
  EXPECT_EQ(step.number, 2U);
  EXPECT_EQ(step.buckets, 2U);
  // A busy machine makes every part longer, but none shorter.
  EXPECT_GE(own(step, PhaseKind::data), 0.0099);
  EXPECT_GE(own(step, PhaseKind::other), 0.0049);
  EXPECT_GE(own(step, PhaseKind::forward), 0.0199);
  EXPECT_GE(own(step, PhaseKind::backward), 0.0399);
  EXPECT_GE(step.bucket[0], 0.0099);
  EXPECT_GE(step.bucket[1], 0.0299);
  EXPECT_GE(step.exposed, 0.0099);
  double sum = step.exposed;
  for (const float part : step.own) sum += part;
  EXPECT_NEAR(sum, step.total, 0.001);
}

TEST(StepClock, TimeWaitedForOthersIsNotOwnTime) {
  StepClock clock;
  clock.step_ended();
  clock.forward_began();
  const std::uint64_t begin = now_ticks();
  pass(20);
  thread_times().blocked += now_ticks() - begin;  // as a blocking collective does
  clock.forward_ended();
  clock.gradients_complete();
  clock.wait_ended();
  clock.step_ended();
  const auto steps = recent_steps(Recorder::process().area(), clock.model(), 10);
  ASSERT_EQ(steps.size(), 1U);
  EXPECT_GE(steps[0].total, 0.0199);
  EXPECT_LE(own(steps[0], PhaseKind::forward), steps[0].total - 0.019F);
}

TEST(StepClock, RecordsSpansForPhasesAndBuckets) {
  StepClock clock;
  run_step(clock);
  const RankRecord record = read_record(Recorder::process().area());
  int forwards = 0, backwards = 0, waits = 0, buckets = 0;
  for (const RecordedSpan& span : record.spans) {
    if (span.model != clock.model()) continue;
    EXPECT_LE(span.begin_ns, span.end_ns);
    forwards += span.kind == PhaseKind::forward;
    backwards += span.kind == PhaseKind::backward;
    waits += span.kind == PhaseKind::exposed_wait;
    if (span.kind != PhaseKind::bucket) continue;
    ++buckets;
    EXPECT_EQ(span.bytes, 100U * static_cast<unsigned>(buckets));
  }
  EXPECT_EQ(forwards, 1);
  EXPECT_EQ(backwards, 1);
  EXPECT_EQ(waits, 1);
  EXPECT_EQ(buckets, 2);
}

}  // namespace
}  // namespace lockstep::record
