#include "launch/report/stall_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <thread>

#include "record/ticks.h"

namespace lockstep::launch {
namespace {

using ::testing::HasSubstr;

class Stall : public ::testing::Test {
 protected:
  Stall() : memory_(record::RecordMemory::create().value()) {
    std::string name = "/tmp/lockstep-stall-test-XXXXXX";
    if (::mkdtemp(name.data()) != nullptr) folder_ = name;
    auto& area = const_cast<record::RecordArea&>(memory_->area());
    area.tick_source.store(static_cast<std::uint32_t>(record::TickSource::monotonic_ns));
    area.start_ticks.store(record::monotonic_ns() - 1'000'000'000);
    area.start_monotonic_ns.store(record::monotonic_ns() - 1'000'000'000);
    area.groups[0].id.store(7);
    area.groups[0].operations.add({.sequence = 1, .started = record::monotonic_ns()});
    area.groups[0].state.store(2);  // open
    area.pid.store(999'999'999);    // has ended: no stacks are taken
  }
  ~Stall() override { std::filesystem::remove_all(folder_); }

  // Polls until there is a message that contains `text`, for 10 s at most.
  std::string wait_for(StallWatch& watch, const std::string& text) {
    for (const Deadline deadline = Deadline::after(std::chrono::seconds(10)); !deadline.expired();) {
      const std::string message = watch.poll({memory_.get()});
      if (message.find(text) != std::string::npos) return message;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return "no message";
  }
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

}  // namespace
}  // namespace lockstep::launch
