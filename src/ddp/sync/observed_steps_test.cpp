// What DDP shows of its steps: marks for PyTorch's profiler, spans of the recorder, and reports of stragglers.
#include <ATen/record_function.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <map>
#include <mutex>
#include <set>

#include "ddp/testing/test_ranks.h"
#include "lockstep/ddp/distributed_data_parallel.h"
#include "record/record_reader.h"
#include "record/recorder.h"

namespace lockstep {
namespace {

using testing::Group;
using testing::run_ranks;

std::mutex observed_mutex;
std::set<std::string> observed_marks;  // guarded by observed_mutex

std::unique_ptr<at::ObserverContext> observe_mark(const at::RecordFunction& function) {
  const std::string name = function.name();
  if (name.rfind("lockstep::", 0) == 0) {
    const std::lock_guard lock(observed_mutex);
    observed_marks.insert(name);
  }
  return nullptr;
}

TEST(ObservedSteps, TheProfilerSeesBucketsBeingLaunchedAndWaitedFor) {
  const auto handle = at::addGlobalCallback(at::RecordFunctionCallback(observe_mark));
  run_ranks(2, [](const Group& group) {
    torch::nn::Linear model(3, 3);
    DistributedDataParallel ddp(model, {.process_group = group});
    ddp(torch::ones({2, 3})).sum().backward();
  });
  at::removeCallback(handle);
  EXPECT_THAT(observed_marks, ::testing::ElementsAre("lockstep::launch_bucket 0", "lockstep::wait_for_bucket 0"));
}

TEST(ObservedSteps, EveryStepLeavesForwardBackwardWaitAndItsBuckets) {
  auto& area = record::Recorder::process().area();
  record::RecordReader reader(area);
  record::RankRecord record;
  reader.read(record);
  // Of other tests in this process.
  record.spans.clear();
  record.steps.clear();
  run_ranks(2, [](const Group& group) {
    torch::nn::Linear model(3, 3);
    DistributedDataParallel ddp(model, {.process_group = group});
    for (int step = 0; step < 5; ++step) ddp(torch::ones({2, 3})).sum().backward();
  });
  reader.read(record);
  std::map<PhaseKind, int> spans;
  for (const auto& span : record.spans) spans[span.kind] += span.model != 0;
  EXPECT_EQ(spans[PhaseKind::forward], 10);
  EXPECT_EQ(spans[PhaseKind::backward], 10);
  EXPECT_EQ(spans[PhaseKind::exposed_wait], 10);
  EXPECT_EQ(spans[PhaseKind::bucket], 10);
  EXPECT_EQ(record.steps.size(), 8U) << "the beginning of the first step of each model is unknown";
}

TEST(ObservedSteps, AReportIsCollectiveAndNeedsTenSteps) {
  run_ranks(2, [](const Group& group) {
    torch::nn::Linear model(3, 3);
    DistributedDataParallel ddp(model, {.process_group = group});
    const auto train = [&](int steps) {
      for (int step = 0; step < steps; ++step) ddp(torch::ones({2, 3})).sum().backward();
    };
    train(5);
    EXPECT_EQ(ddp.stragglers().steps, 0);
    train(10);
    const StragglerReport report = ddp.stragglers();
    EXPECT_EQ(report.steps, 14);
    EXPECT_GT(report.step_seconds, 0);
  });
}

}  // namespace
}  // namespace lockstep
