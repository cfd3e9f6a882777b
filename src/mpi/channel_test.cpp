// A channel over an MPI of this file, whose requests end when the test chooses.
#include "mpi/channel.h"

#include <gmock/gmock.h>

#include <cstdio>
#include <thread>

struct lockstep_mpi_request {
  bool done = false;
  int code = 0;
  std::size_t received = 0;
};

namespace lockstep::mpi {
namespace {

using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

lockstep_mpi_plugin scripted_mpi() {
  lockstep_mpi_plugin mpi{};
  mpi.test = [](lockstep_mpi_request* request, int* done, std::size_t* received) {
    *done = request->done ? 1 : 0;
    *received = request->received;
    return request->done ? request->code : 0;
  };
  mpi.error_text = [](int code, char* text, std::size_t size) { std::snprintf(text, size, "text of %d", code); };
  return mpi;
}

class MpiChannel : public ::testing::Test {
 protected:
  ChannelOperation operation(const std::string& text, lockstep_mpi_request* request,
                             milliseconds timeout = std::chrono::hours(1)) {
    ChannelOperation result;
    result.collective = {.kind = OperationKind::all_reduce, .count = 3};
    result.timeout = timeout;
    result.start = [this, text, request](lockstep_mpi_request** started) {
      started_.push_back(text);
      *started = request;
      return start_code_;
    };
    return result;
  }

  const lockstep_mpi_plugin mpi_ = scripted_mpi();
  Status health_;
  Status notified_;
  int start_code_ = 0;
  Status verdict_;
  std::vector<std::uint64_t> looks_;  // numbers of the collectives that were looked at; 0: none
  std::vector<std::uint64_t> completed_;
  std::vector<std::string> started_;
  std::vector<ChannelOperation> abandoned_;
  Channel channel_{{.mpi = &mpi_,
                    .name = "group 'g'",
                    .health = [this] { return health_; },
                    .notify_peers = [this](const Status& reason) { notified_ = reason; },
                    .look =
                        [this](const std::optional<OuterOperations::Pending>& oldest) {
                          looks_.push_back(oldest ? oldest->op.sequence : 0);
                          return verdict_;
                        },
                    .completed = [this](const OpDescriptor& op) { completed_.push_back(op.sequence); },
                    .wake = [] {},
                    .abandon = [this](std::vector<ChannelOperation> left) { abandoned_ = std::move(left); }}};
  lockstep_mpi_request first_, second_;
};

TEST_F(MpiChannel, AnOperationOfTwoCallsIsOneOperation) {
  ChannelOperation two = operation("a", &first_);
  two.then = [this](lockstep_mpi_request** request) {
    started_.push_back("a, second call");
    *request = &second_;
    return 0;
  };
  const Work work = channel_.submit(std::move(two));
  const Work next = channel_.submit(operation("b", &first_));
  first_.done = true;
  channel_.advance();
  channel_.advance();
  EXPECT_THAT(started_, ElementsAre("a", "a, second call"));
  EXPECT_FALSE(work.is_completed());
  EXPECT_THAT(completed_, IsEmpty());
  second_.done = true;
  channel_.advance();
  EXPECT_TRUE(work.is_completed());
  EXPECT_TRUE(work.error().ok());
  channel_.advance();
  EXPECT_TRUE(next.is_completed());
}

TEST_F(MpiChannel, ASecondCallThatFailsEndsTheGroup) {
  ChannelOperation two = operation("a", &first_);
  two.then = [](lockstep_mpi_request**) { return 7; };
  const Work work = channel_.submit(std::move(two));
  first_.done = true;
  channel_.advance();
  EXPECT_TRUE(work.is_completed());
  EXPECT_THAT(notified_.message(), HasSubstr("all_reduce(count 3, u8, sum) #1: MPI returned error 7: text of 7"));
  EXPECT_FALSE(channel_.busy());
}

TEST_F(MpiChannel, CollectivesRunOneAfterTheOther) {
  const Work first = channel_.submit(operation("a", &first_));
  const Work second = channel_.submit(operation("b", &second_));
  EXPECT_TRUE(channel_.advance());
  EXPECT_THAT(started_, ElementsAre("a"));
  second_.done = first_.done = true;
  EXPECT_TRUE(channel_.advance());
  EXPECT_TRUE(first.is_completed());
  EXPECT_FALSE(second.is_completed());
  EXPECT_TRUE(channel_.advance());
  EXPECT_TRUE(second.is_completed());
  EXPECT_FALSE(channel_.busy());
  EXPECT_THAT(completed_, ElementsAre(1, 2));
}

TEST_F(MpiChannel, MessagesDoNotWaitForCollectives) {
  channel_.submit(operation("a", &first_));
  ChannelOperation message = operation("send", &second_);
  message.collective.reset();
  second_.done = true;
  const Work sent = channel_.submit(std::move(message));
  channel_.advance();
  EXPECT_TRUE(sent.is_completed());
  EXPECT_THAT(completed_, IsEmpty());
}

TEST_F(MpiChannel, AnErrorOfMpiReachesAllRanksWithItsMessage) {
  const Work work = channel_.submit(operation("a", &first_));
  first_.code = 15;
  first_.done = true;
  channel_.advance();
  EXPECT_THAT(work.error().message(),
              AllOf(HasSubstr("group 'g': all_reduce(count 3, u8, sum) #1"), HasSubstr("text of 15")));
  EXPECT_EQ(notified_, work.error());
  EXPECT_EQ(channel_.submit(operation("b", &second_)).error(), work.error());
}

TEST_F(MpiChannel, AnErrorWhenAnOperationStartsCountsToo) {
  start_code_ = 3;
  const Work work = channel_.submit(operation("a", &first_));
  channel_.advance();
  EXPECT_THAT(work.error().message(), HasSubstr("text of 3"));
}

TEST_F(MpiChannel, ALostPeerEndsAllAndMemoryInUseIsKept) {
  auto memory = std::make_shared<int>(7);
  ChannelOperation running = operation("a", &first_);
  running.memory = memory;
  const Work first = channel_.submit(std::move(running));
  const Work second = channel_.submit(operation("b", &second_));
  channel_.advance();
  health_ = {StatusCode::peer_lost, "rank 2 is gone"};
  channel_.check();
  channel_.advance();
  EXPECT_EQ(first.error(), health_);
  EXPECT_EQ(second.error(), health_);
  ASSERT_EQ(abandoned_.size(), 1U);
  EXPECT_EQ(abandoned_[0].request, &first_);
  EXPECT_EQ(memory.use_count(), 2);
  EXPECT_TRUE(notified_.ok()) << "the others know it themselves";
  channel_.drain();
}

TEST_F(MpiChannel, LooksAtTheOldestCollectiveAtIntervals) {
  channel_.check();
  channel_.submit(operation("a", &first_));
  channel_.submit(operation("b", &second_));
  channel_.advance();
  const auto submitted = Deadline::Clock::now();
  channel_.check();
  const std::size_t at_once = looks_.size();
  if (Deadline::Clock::now() - submitted < OuterOperations::kLook) {
    EXPECT_EQ(at_once, 1U) << "most operations end sooner";
  }
  std::this_thread::sleep_for(OuterOperations::kLook);
  for (int i = 0; i < 100; ++i) channel_.check();
  EXPECT_EQ(looks_.front(), 0U);
  EXPECT_EQ(looks_.back(), 1U);
  EXPECT_LE(looks_.size(), at_once + 50) << "not in each check";
}

TEST_F(MpiChannel, WhatIsFoundEndsTheGroupOnAllRanks) {
  const Work work = channel_.submit(operation("a", &first_));
  verdict_ = {StatusCode::timed_out, "rank 2 did not reach it"};
  channel_.advance();
  std::this_thread::sleep_for(OuterOperations::kLook);
  channel_.check();
  channel_.advance();
  EXPECT_EQ(work.error().code(), StatusCode::timed_out);
  EXPECT_EQ(work.error().message(), "group 'g': rank 2 did not reach it");
  EXPECT_EQ(notified_, work.error());
}

TEST_F(MpiChannel, AMessageNamesItsPeerByItself) {
  ChannelOperation message = operation("recv from rank 2", &first_, milliseconds(0));
  message.collective.reset();
  message.text = "recv from rank 2";
  const Work work = channel_.submit(std::move(message));
  channel_.advance();
  channel_.check();
  channel_.advance();
  EXPECT_EQ(work.error().code(), StatusCode::timed_out);
  EXPECT_THAT(work.error().message(), HasSubstr("recv from rank 2"));
}

TEST_F(MpiChannel, WhatFollowsTheOperationMayFailIt) {
  ChannelOperation receive = operation("recv", &first_);
  receive.finish = [](std::size_t received) {
    return received == 2 ? Status() : Status(StatusCode::mismatch, std::to_string(received) + " came");
  };
  first_.done = true;
  first_.received = 3;
  const Work work = channel_.submit(std::move(receive));
  channel_.advance();
  EXPECT_EQ(work.error().code(), StatusCode::mismatch);
  EXPECT_THAT(work.error().message(), HasSubstr("3 came"));
}

}  // namespace
}  // namespace lockstep::mpi
