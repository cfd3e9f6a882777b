#include <gtest/gtest.h>
#include <lockstep/communicator/work.h>

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <thread>
#include <vector>

#include "communicator/work_state.h"

namespace lockstep {
namespace {

using namespace std::chrono_literals;

TEST(Work, WaitEndsAtItsDeadlineWithoutEndingTheOperation) {
  auto state = std::make_shared<detail::WorkState>();
  const Work work(state);
  EXPECT_EQ(work.wait(Deadline::after(5ms)).code(), StatusCode::timed_out);
  EXPECT_FALSE(work.is_completed());
  EXPECT_TRUE(work.error().ok()) << "a running operation has no error";
  state->complete(Status());
  EXPECT_TRUE(work.wait(Deadline::after(5s)).ok());
  EXPECT_TRUE(work.is_completed());
}

TEST(Work, AFailureIsThrownAndKept) {
  auto state = std::make_shared<detail::WorkState>();
  state->complete(Status(StatusCode::peer_lost, "rank 1"));
  const Work work(state);
  EXPECT_THROW(work.wait(), Error);
  EXPECT_EQ(work.error().code(), StatusCode::peer_lost);
}

// A tensor that an operation used belongs to the caller alone again.
TEST(Work, WhatContinuationsHoldIsReleasedBeforeAWaitReturns) {
  struct SlowToGo {
    ~SlowToGo() { std::this_thread::sleep_for(2ms); }
  };
  for (int round = 0; round < 20; ++round) {
    auto state = std::make_shared<detail::WorkState>();
    const Work work(state);
    auto held = std::make_shared<int>(7);
    work.then([held, slow = std::make_shared<SlowToGo>()](const Status&) {});
    std::thread completer([&] { state->complete(Status()); });
    work.wait();
    EXPECT_EQ(held.use_count(), 1);
    completer.join();
  }
}

TEST(Work, ContinuationsRunOnceWhetherAddedBeforeOrAfterCompletion) {
  for (int round = 0; round < 200; ++round) {
    auto state = std::make_shared<detail::WorkState>();
    const Work work(state);
    std::atomic<int> calls{0};
    const auto count = [&](const Status& status) { calls += status.ok() ? 1 : 100; };
    work.then(count);
    std::thread completer([&] { state->complete(Status()); });
    work.then(count);
    work.wait();
    completer.join();
    work.then(count);
    EXPECT_EQ(calls, 3);
  }
}

TEST(Work, EveryWaitThatSucceedsArrivesOnItsOwnThread) {
  auto state = std::make_shared<detail::WorkState>();
  std::vector<std::thread::id> arrived;
  state->set_arrival([&] {
    arrived.push_back(std::this_thread::get_id());
    return Status();
  });
  const Work work(state);
  EXPECT_EQ(work.wait(Deadline::after(1ms)).code(), StatusCode::timed_out);
  state->complete(Status());
  EXPECT_TRUE(arrived.empty()) << "only waits call arrival";
  work.wait();
  std::thread other([&] { work.wait(); });
  const std::thread::id other_id = other.get_id();
  other.join();
  EXPECT_EQ(arrived, (std::vector<std::thread::id>{std::this_thread::get_id(), other_id}));
}

TEST(Work, AFailureOnArrivalIsThrownAndAFailedOperationDoesNotArrive) {
  auto state = std::make_shared<detail::WorkState>();
  state->set_arrival([] { return Status(StatusCode::internal, "the device"); });
  state->complete(Status());
  EXPECT_THROW(Work(state).wait(), Error);

  auto failed = std::make_shared<detail::WorkState>();
  failed->set_arrival([]() -> Status { throw std::logic_error("must not be called"); });
  failed->complete(Status(StatusCode::peer_lost, "rank 1"));
  EXPECT_EQ(Work(failed).wait(Deadline::after(5s)).code(), StatusCode::peer_lost);
}

TEST(Work, AnEmptyWorkIsComplete) {
  EXPECT_TRUE(Work().is_completed());
  Work().wait();
}

}  // namespace
}  // namespace lockstep
