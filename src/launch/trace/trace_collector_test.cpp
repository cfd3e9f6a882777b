#include "launch/trace/trace_collector.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "record/ticks.h"

namespace lockstep::launch {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

// Memory as a rank would use it, which records by itself.
class FakeRank {
 public:
  explicit FakeRank(int rank) : memory_(record::RecordMemory::create().value()) {
    const auto now = record::ClockReading::now();
    area().tick_source.store(static_cast<std::uint32_t>(record::tick_source()));
    area().start_ticks.store(now.ticks);
    area().start_monotonic_ns.store(now.monotonic_ns);
    area().rank.store(rank + 1);
    area().pid.store(100 + rank);
  }
  record::RecordArea& area() { return const_cast<record::RecordArea&>(memory_->area()); }
  const record::RecordMemory& memory() const { return *memory_; }
  void compute(int spans) {
    for (int i = 0; i < spans; ++i) {
      area().spans.add({.begin = next_, .end = next_ + 50, .kind = PhaseKind::forward});
      next_ += 100;
    }
  }
  // Each place for a group has another group, which makes one operation.
  void replace_groups() {
    for (auto& group : area().groups) {
      group.state.store(4 * groups_made_ + 1);
      group.first.store(group.operations.count());
      group.id.store(++next_);
      group.state.store(4 * groups_made_ + 2);
      group.operations.add(
          {.sequence = 1, .outcome = record::Outcome::done, .issued = next_, .started = next_, .finished = next_ + 50});
      next_ += 100;
    }
    ++groups_made_;
  }

 private:
  std::unique_ptr<record::RecordMemory> memory_;
  std::uint64_t groups_made_ = 0;  // in each place
  std::uint64_t next_ = record::now_ticks();
};

class TraceFile : public ::testing::Test {
 protected:
  ~TraceFile() override { std::remove(path_.c_str()); }
  std::size_t events(const std::string& kind, const std::string& name) const {
    const json trace = json::parse(std::ifstream(path_));
    std::size_t count = 0;
    for (const json& event : trace["traceEvents"]) count += event["ph"] == kind && event["name"] == name ? 1U : 0U;
    return count;
  }
  const std::string path_ = "/tmp/lockstep-trace-" + std::to_string(::getpid()) + ".json";
};

TEST_F(TraceFile, HasEverythingOfAShortJob) {
  FakeRank rank(0);
  const auto collector = TraceCollector::create(path_, 1000).value();
  collector->started(rank.memory(), "");
  rank.compute(900);
  ASSERT_TRUE(collector->write().ok());
  EXPECT_EQ(events("X", "forward"), 900U);
  EXPECT_EQ(events("i", "dropped"), 0U);
  EXPECT_EQ(collector->describe_dropped(), "");
}

TEST_F(TraceFile, HasTheLatestRecordsOfALongJobAndStatesHowManyAreMissing) {
  FakeRank first(0), second(1);
  const auto collector = TraceCollector::create(path_, 1000).value();
  collector->started(first.memory(), "");
  first.compute(600);
  collector->ended(first.memory(), "");
  collector->started(second.memory(), "");
  second.compute(8000);
  ASSERT_TRUE(collector->write().ok());
  const std::size_t kept = events("X", "forward");
  EXPECT_LE(kept, 1000U);
  EXPECT_GE(kept, 400U);
  EXPECT_EQ(events("i", "dropped"), 1U);
  EXPECT_THAT(collector->describe_dropped(), HasSubstr(std::to_string(8600 - kept) + " older records were dropped"));
  EXPECT_THAT(collector->describe_dropped(), HasSubstr("1 processes that had ended"));
}

TEST_F(TraceFile, DropsGroupsThatARunningProcessHasEnded) {
  FakeRank rank(0);
  const auto collector = TraceCollector::create(path_, 70).value();
  collector->started(rank.memory(), "");
  constexpr std::size_t kTimes = 4;
  for (std::size_t i = 0; i < kTimes; ++i) {
    rank.replace_groups();
    collector->poll();
    std::this_thread::sleep_for(std::chrono::milliseconds(TraceCollector::kPeriodMs + 10));
  }
  ASSERT_TRUE(collector->write().ok());
  std::size_t groups = 0, operations = 0;
  const json trace = json::parse(std::ifstream(path_));
  for (const json& event : trace["traceEvents"]) {
    if (event["name"] == "thread_name" && event["args"]["name"] == "collectives of ''") ++groups;
    if (event.value("cat", "") == "collective") ++operations;
  }
  EXPECT_GE(operations, record::kGroups) << "those of the groups that there are";
  EXPECT_LE(operations, 35U);
  EXPECT_EQ(groups, operations);
  EXPECT_THAT(collector->describe_dropped(),
              HasSubstr(std::to_string(kTimes * record::kGroups - operations) + " older records were dropped"));
}

TEST_F(TraceFile, KeepsMoreThanItShouldIfNothingCanBeDropped) {
  FakeRank rank(0);
  const auto collector = TraceCollector::create(path_, 20).value();
  collector->started(rank.memory(), "");
  rank.replace_groups();
  ASSERT_TRUE(collector->write().ok());
  EXPECT_EQ(collector->describe_dropped(), "") << "the latest operation of each group is kept";
}

TEST_F(TraceFile, StatesWhatWasOverwrittenBeforeItWasRead) {
  FakeRank rank(0);
  const auto collector = TraceCollector::create(path_).value();
  collector->started(rank.memory(), "");
  rank.compute(static_cast<int>(record::kSpans) + 5);
  ASSERT_TRUE(collector->write().ok());
  EXPECT_THAT(collector->describe_dropped(), HasSubstr("5 records were overwritten before they were read"));
}

}  // namespace
}  // namespace lockstep::launch
