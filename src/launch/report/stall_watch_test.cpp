#include "launch/report/stall_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <thread>
#include <vector>

#include "record/ticks.h"

namespace lockstep::launch {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class Stall : public ::testing::Test {
 protected:
  Stall() : memory_(record::RecordMemory::create().value()) {
    std::string name = "/tmp/lockstep-stall-test-XXXXXX";
    if (::mkdtemp(name.data()) != nullptr) folder_ = name;
    area().tick_source.store(static_cast<std::uint32_t>(record::TickSource::monotonic_ns));
    area().start_ticks.store(record::monotonic_ns() - 1'000'000'000);
    area().start_monotonic_ns.store(record::monotonic_ns() - 1'000'000'000);
    begin(0, 1, record::monotonic_ns());
    area().pid.store(999'999'999);  // has ended: no stacks are taken
  }
  ~Stall() override { std::filesystem::remove_all(folder_); }

  // An operation of another group.
  void begin(std::size_t group, std::uint64_t sequence, std::uint64_t started) {
    area().groups[group].id.store(7 + group);
    area().groups[group].operations.add({.sequence = sequence, .started = started});
    area().groups[group].state.store(2);  // open
  }
  // Polls until there is a message that contains `text`, for 10 s at most.
  std::string wait_for(StallWatch& watch, const std::string& text) {
    for (const Deadline deadline = Deadline::after(std::chrono::seconds(10)); !deadline.expired();) {
      const std::string message = watch.poll({memory_.get()});
      if (message.find(text) != std::string::npos) return message;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return "no message";
  }
  // All messages of the next few seconds.
  std::vector<std::string> messages(StallWatch& watch, std::chrono::milliseconds time) {
    std::vector<std::string> all;
    for (const Deadline deadline = Deadline::after(time); !deadline.expired();) {
      if (std::string message = watch.poll({memory_.get()}); !message.empty()) all.push_back(std::move(message));
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    return all;
  }
  record::RecordArea& area() { return const_cast<record::RecordArea&>(memory_->area()); }
  std::size_t files() const {
    return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(folder_), {}));
  }

  const std::unique_ptr<record::RecordMemory> memory_;
  std::string folder_;
};

TEST_F(Stall, IsWrittenAgainWhenItHasLastedTwiceAsLong) {
  StallWatch watch({.after = std::chrono::milliseconds(200), .folder = folder_, .pause = std::chrono::milliseconds(0)});
  EXPECT_THAT(wait_for(watch, "has run for"), HasSubstr("#1"));
  EXPECT_THAT(wait_for(watch, "the stacks"), HasSubstr(folder_));
  EXPECT_THAT(wait_for(watch, "has run for"), HasSubstr("#1"));
  EXPECT_THAT(wait_for(watch, "the stacks"), HasSubstr(folder_));
  EXPECT_EQ(files(), 2U);
}

TEST_F(Stall, IsWrittenOnceInAPause) {
  StallWatch watch({.after = std::chrono::milliseconds(200), .folder = folder_, .pause = std::chrono::hours(1)});
  EXPECT_THAT(wait_for(watch, "the stacks"), HasSubstr(folder_));
  const Deadline deadline = Deadline::after(std::chrono::milliseconds(2500));
  while (!deadline.expired()) {
    EXPECT_EQ(watch.poll({memory_.get()}), "");
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  EXPECT_EQ(files(), 1U);
}

TEST_F(Stall, OfTwoOperationsIsWrittenOnceForEach) {
  begin(1, 2, record::monotonic_ns() - 20'000'000'000);
  begin(2, 3, record::monotonic_ns() - 20'000'000'000);
  StallWatch watch(
      {.after = std::chrono::milliseconds(15'000), .folder = folder_, .pause = std::chrono::milliseconds(0)});
  EXPECT_THAT(messages(watch, std::chrono::milliseconds(5500)),
              ElementsAre(HasSubstr("#2"), HasSubstr("the stacks"), HasSubstr("#3"), HasSubstr("the stacks")));
  EXPECT_EQ(files(), 2U);
}

// As the clock of a rank is compared with that of the launcher again each time.
TEST_F(Stall, IsTheSameWhenItsBeginningIsMeasuredSlightlyDifferently) {
  begin(1, 2, record::monotonic_ns() - 20'000'000'000);
  StallWatch watch(
      {.after = std::chrono::milliseconds(15'000), .folder = folder_, .pause = std::chrono::milliseconds(0)});
  EXPECT_THAT(wait_for(watch, "the stacks"), HasSubstr(folder_));
  area().start_monotonic_ns += 1000;
  EXPECT_THAT(messages(watch, std::chrono::milliseconds(1500)), IsEmpty());
}

TEST_F(Stall, IsStillReportedAfterTheLastDump) {
  StallWatch watch({.after = std::chrono::milliseconds(200),
                    .folder = folder_,
                    .pause = std::chrono::milliseconds(0),
                    .most_dumps = 1});
  EXPECT_THAT(wait_for(watch, "the stacks"), HasSubstr(folder_));
  EXPECT_THAT(wait_for(watch, "has run for"), HasSubstr("#1"));
  EXPECT_THAT(messages(watch, std::chrono::milliseconds(1500)), IsEmpty());
  EXPECT_EQ(files(), 1U);
}

}  // namespace
}  // namespace lockstep::launch
