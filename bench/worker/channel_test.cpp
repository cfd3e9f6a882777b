#include "bench/worker/channel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

namespace lockstep::bench {
namespace {

class ChannelPair : public ::testing::Test {
 protected:
  void SetUp() override {
    int ends[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    driver_.emplace(UniqueFd(ends[0]));
    worker_.emplace(UniqueFd(ends[1]));
  }
  std::optional<Channel> driver_;
  std::optional<Channel> worker_;
};

TEST_F(ChannelPair, CarriesCommandsAndReplies) {
  driver_->send(Command{.collective = Collective::all_gather, .dtype = DType::i8, .bytes = 77, .iterations = 3});
  const Command command = worker_->receive_command();
  EXPECT_EQ(command.kind, CommandKind::run);
  EXPECT_EQ(command.collective, Collective::all_gather);
  EXPECT_EQ(command.dtype, DType::i8);
  EXPECT_EQ(command.bytes, 77u);
  EXPECT_EQ(command.iterations, 3u);

  worker_->send(Reply{"why", 5, 0.25, {1.5, 2.5}, {7, 8, 9}});
  const Reply reply = driver_->receive_reply();
  EXPECT_EQ(reply.error, "why");
  EXPECT_EQ(reply.wrong, 5u);
  EXPECT_EQ(reply.cpu_seconds, 0.25);
  EXPECT_THAT(reply.seconds, ::testing::ElementsAre(1.5, 2.5));
  EXPECT_THAT(reply.digests, ::testing::ElementsAre(7, 8, 9));
}

TEST_F(ChannelPair, SaysThatTheOtherEndIsGone) {
  worker_.reset();
  EXPECT_THROW(driver_->receive_reply(), BenchError);
  EXPECT_THROW(driver_->send(Command{}), BenchError);
}

TEST_F(ChannelPair, RefusesMessagesOfAnotherKind) {
  worker_->send(Hello{1, 2});
  EXPECT_THROW(driver_->receive_reply(), BenchError);
}

}  // namespace
}  // namespace lockstep::bench
