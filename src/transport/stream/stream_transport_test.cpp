#include "transport/stream/stream_transport.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <string>
#include <thread>

namespace lockstep {
namespace {

using namespace std::chrono_literals;

TEST(MemoryQueue, MergesAdjacentRangesAndDropsRetiredOnes) {
  std::array<std::byte, 100> memory{};
  MemoryQueue queue;
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

// Two transports that one thread drives: the kernel's socket buffers hold what is in flight.
class StreamTransportTest : public ::testing::Test {
 protected:
  explicit StreamTransportTest(int connections = 3, const StreamOptions& options = {.stripe_bytes = 100})
      : stop_fd_(::eventfd(0, EFD_CLOEXEC)), scope_(stop_, stop_fd_.get()) {
    std::vector<std::vector<Channel>> to_one(2);
    std::vector<std::vector<Channel>> to_zero(2);
    for (int i = 0; i < connections; ++i) {
      int fds[2] = {-1, -1};
      EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), 0);
      to_one[1].emplace_back(UniqueFd(fds[0]));
      to_zero[0].emplace_back(UniqueFd(fds[1]));
    }
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

TEST_F(StreamTransportTest, CarriesRangesOfAnySizeOverAllConnections) {
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

TEST_F(StreamTransportTest, WaitingWithNothingQueuedIsAnInternalError) {
  zero_->begin({}, differs);
  EXPECT_EQ(zero_->advance(scope_).code(), StatusCode::internal);
}

TEST_F(StreamTransportTest, ReportsTheGroupsReasonForALossRatherThanItsOwn) {
  begin({});
  zero_.reset();
  scope_.answer = Status(StatusCode::peer_lost, "rank 0 was killed");
  EXPECT_EQ(one_->finish(scope_), scope_.answer);
}

// A rank that answers no attempt to connect.
class NoRoom final : public LinkSource {
 public:
  Result<Channel> connect(const LinkName&, Deadline deadline) override {
    times.push_back(deadline.remaining());
    if (times.size() == 3) deadline_passed();
    return Status(StatusCode::timed_out, "too many open files");
  }
  Links take_all(const std::string&) override { return {}; }
  void set_listener(const std::string&, std::function<void()>) override {}
  int data_links(int) const override { return 1; }
  std::function<void()> deadline_passed;
  std::vector<Deadline::Duration> times;  // that the attempts were given
};

TEST_F(StreamTransportTest, TriesToConnectUntilTheDeadlineAndThenReportsWhyItCouldNot) {
  const auto links = std::make_shared<NoRoom>();
  links->deadline_passed = [this] { scope_.answer = Status(StatusCode::timed_out, "the deadline of all_reduce"); };
  StreamTransport streams(1, 2, links);
  streams.begin({}, differs);
  streams.open_send(0);
  const Status status = streams.finish(scope_);
  EXPECT_EQ(status.code(), StatusCode::timed_out);
  EXPECT_NE(status.message().find("the deadline of all_reduce"), std::string::npos) << status.message();
  EXPECT_NE(status.message().find("too many open files"), std::string::npos) << status.message();
  ASSERT_EQ(links->times.size(), 3U);
  EXPECT_LE(links->times[0], 1s);
  EXPECT_GT(links->times[1], 1s) << "a slow network needs more time";
}

double cpu_seconds_of_process() {
  timespec time{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// Two ranks on one processor: while one waits, the other must be able to run, or each message costs a whole spin.
class StreamTransportOnOneProcessor : public StreamTransportTest {
 protected:
  static constexpr int kMessages = 100;
  static constexpr auto kSpin = 20ms;

  StreamTransportOnOneProcessor() : StreamTransportTest(1, {.spin = kSpin}) {
    ::sched_getaffinity(0, sizeof(before_), &before_);
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(::sched_getcpu(), &one);
    EXPECT_EQ(::sched_setaffinity(0, sizeof(one), &one), 0);
  }
  ~StreamTransportOnOneProcessor() override { ::sched_setaffinity(0, sizeof(before_), &before_); }

  // Sends a byte, waits for the peer's, again and again.
  Status play(StreamTransport& streams, int peer) {
    Scope scope(stop_, stop_fd_.get());
    for (int i = 0; i < kMessages; ++i) {
      std::byte mine{}, theirs{};
      streams.begin({}, differs);
      streams.open_send(peer);
      streams.open_receive(peer);
      streams.send(peer, &mine, 1);
      streams.receive(peer, &theirs, 1);
      LOCKSTEP_RETURN_IF_ERROR(streams.finish(scope));
    }
    return {};
  }

 private:
  cpu_set_t before_;
};

TEST_F(StreamTransportOnOneProcessor, AWaitingRankYields) {
  const double before = cpu_seconds_of_process();
  Status other;
  std::thread thread([&] { other = play(*one_, 0); });
  const Status mine = play(*zero_, 1);
  thread.join();
  EXPECT_TRUE(mine.ok()) << mine.message();
  EXPECT_TRUE(other.ok()) << other.message();
  const double spins = (cpu_seconds_of_process() - before) / std::chrono::duration<double>(kSpin).count();
  EXPECT_LT(spins, kMessages / 20) << "processor time, in spins of 20 ms";
}

TEST_F(StreamTransportTest, ScratchMemoryGrowsAndIsReused) {
  std::byte* large = zero_->scratch(100000).data();
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(large) % 4096, 0u);
  EXPECT_EQ(zero_->scratch(10).data(), large);
}

}  // namespace
}  // namespace lockstep
