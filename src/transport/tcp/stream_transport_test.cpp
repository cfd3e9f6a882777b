#include "transport/tcp/stream_transport.h"

#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <string>

namespace lockstep {
namespace {

using namespace std::chrono_literals;

TEST(PieceQueue, JoinsNeighboursAndForgetsWhatIsThrough) {
  std::array<std::byte, 100> memory{};
  PieceQueue queue;
  queue.push(memory.data(), 10);
  queue.push(memory.data() + 10, 10);
  queue.push(memory.data() + 50, 5);
  queue.push(memory.data(), 0);
  EXPECT_EQ(queue.end(), 25u);
  EXPECT_EQ(queue.at(3).data(), memory.data() + 3);
  EXPECT_EQ(queue.at(3).size(), 17u);
  EXPECT_EQ(queue.at(20).data(), memory.data() + 50);
  EXPECT_TRUE(queue.at(25).empty());
  queue.retire(22);
  EXPECT_EQ(queue.at(22).data(), memory.data() + 52);
  queue.retire(25);
  queue.push(memory.data() + 70, 4);
  EXPECT_EQ(queue.at(26).data(), memory.data() + 71);
}

class Scope : public WaitScope {
 public:
  using WaitScope::WaitScope;
  Deadline deadline() override { return until_; }
  Status check(std::span<const int>) override { return answer; }
  Status answer;

 private:
  const Deadline until_ = Deadline::after(30s);
};

Status differs(int, const StreamHeaderBytes&, int their_rank, const StreamHeaderBytes&) {
  return Status(StatusCode::mismatch, "rank " + std::to_string(their_rank));
}

// Two transports that one thread drives: their buffers in the kernel hold what is under way.
class StreamTransportTest : public ::testing::Test {
 protected:
  explicit StreamTransportTest(int connections = 3)
      : stop_fd_(::eventfd(0, EFD_CLOEXEC)), scope_(stop_, stop_fd_.get()) {
    std::vector<std::vector<UniqueFd>> to_one(2);
    std::vector<std::vector<UniqueFd>> to_zero(2);
    for (int i = 0; i < connections; ++i) {
      int fds[2] = {-1, -1};
      EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), 0);
      to_one[1].emplace_back(fds[0]);
      to_zero[0].emplace_back(fds[1]);
    }
    const StreamOptions options{.stripe_bytes = 100};
    zero_ = std::make_unique<StreamTransport>(0, std::move(to_one), options);
    one_ = std::make_unique<StreamTransport>(1, std::move(to_zero), options);
  }

  void begin(const StreamHeaderBytes& header_of_one) {
    zero_->begin({}, differs);
    zero_->open_send(1);
    one_->begin(header_of_one, differs);
    one_->open_receive(0);
  }

  const std::atomic<bool> stop_{false};
  UniqueFd stop_fd_;
  Scope scope_;
  std::unique_ptr<StreamTransport> zero_;
  std::unique_ptr<StreamTransport> one_;
};

TEST_F(StreamTransportTest, CarriesPiecesOfAnySizeOverAllConnections) {
  std::vector<std::byte> sent(1234);
  for (std::size_t i = 0; i < sent.size(); ++i) sent[i] = static_cast<std::byte>(i * 7);
  for (int operation = 0; operation < 3; ++operation) {
    std::vector<std::byte> received(sent.size());
    begin({});
    for (std::size_t at = 0; at < sent.size(); at += 77) {
      const std::size_t size = std::min<std::size_t>(77, sent.size() - at);
      zero_->send(1, sent.data() + at, size);
      ASSERT_TRUE(zero_->finish(scope_).ok());
      EXPECT_EQ(zero_->sent(1), at + size);
    }
    for (std::size_t at = 0; at < sent.size(); at += 501) {
      one_->receive(0, received.data() + at, std::min<std::size_t>(501, sent.size() - at));
    }
    ASSERT_TRUE(one_->finish(scope_).ok());
    EXPECT_EQ(one_->received(0), sent.size());
    EXPECT_EQ(received, sent);
  }
}

TEST_F(StreamTransportTest, AnEmptyStreamStillComparesHeaders) {
  begin({});
  EXPECT_FALSE(one_->idle());
  ASSERT_TRUE(zero_->finish(scope_).ok());
  ASSERT_TRUE(one_->finish(scope_).ok());
  begin({std::byte{1}});
  ASSERT_TRUE(zero_->finish(scope_).ok());
  EXPECT_EQ(one_->finish(scope_), Status(StatusCode::mismatch, "rank 0"));
}

TEST_F(StreamTransportTest, WaitingForNothingIsADefectAndSaysSo) {
  zero_->begin({}, differs);
  EXPECT_EQ(zero_->advance(scope_).code(), StatusCode::internal);
}

TEST_F(StreamTransportTest, TheGroupsReasonForALossComesBeforeOurOwn) {
  begin({});
  zero_.reset();
  scope_.answer = Status(StatusCode::peer_lost, "rank 0 was killed");
  EXPECT_EQ(one_->finish(scope_), scope_.answer);
}

TEST_F(StreamTransportTest, ScratchGrowsAndStays) {
  std::byte* large = zero_->scratch(100000).data();
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(large) % 4096, 0u);
  EXPECT_EQ(zero_->scratch(10).data(), large);
}

}  // namespace
}  // namespace lockstep
