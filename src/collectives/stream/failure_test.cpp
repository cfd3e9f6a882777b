// How operations over streams fail: which rank is named, and that no rank hangs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "collectives/stream/algorithms.h"
#include "collectives/testing/stream_test_group.h"

namespace lockstep {
namespace {

using stream_test::StreamTestGroup;
using stream_test::TestScope;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using namespace std::chrono_literals;

constexpr std::size_t kLarge = 32 << 20;  // more than the kernel buffers on a connection

CollectiveCall all_reduce_call(std::vector<std::byte>& buffer, std::uint64_t sequence = 1) {
  CollectiveCall call;
  call.descriptor = {
      .sequence = sequence, .kind = OperationKind::all_reduce, .dtype = DType::i32, .count = buffer.size() / 4};
  call.input = call.output = buffer.data();
  return call;
}

Status run(StreamFunction function, const CollectiveCall& call, StreamTransport& streams, WaitScope& scope) {
  return function(whole_group(call, streams.rank(), streams.all_ranks()), streams, scope);
}

struct Mismatch {
  const char* name;
  void (*change)(OpDescriptor&);
};

class StreamMismatch : public ::testing::TestWithParam<Mismatch> {};

TEST_P(StreamMismatch, FailsOnBothSidesNamingBoth) {
  for (const StreamFunction function : {stream_ring, stream_direct, stream_pair, stream_small}) {
    StreamTestGroup group({.size = 2});
    const auto results = group.run([&](std::size_t rank, StreamTransport& streams, WaitScope& scope) {
      std::vector<std::byte> buffer(400);
      CollectiveCall call = all_reduce_call(buffer, 7);
      if (rank == 1) GetParam().change(call.descriptor);
      return run(function, call, streams, scope);
    });
    for (const Status& status : results) {
      EXPECT_EQ(status.code(), StatusCode::mismatch) << status.to_string();
      EXPECT_THAT(status.message(), HasSubstr("rank 0 called all_reduce(count 100, i32, sum) #7, rank 1 called"));
    }
    EXPECT_EQ(results[0], results[1]);
  }
}

INSTANTIATE_TEST_SUITE_P(Of, StreamMismatch,
                         ::testing::Values(Mismatch{"kind",
                                                    [](OpDescriptor& op) { op.kind = OperationKind::reduce_scatter; }},
                                           Mismatch{"dtype", [](OpDescriptor& op) { op.dtype = DType::f32; }},
                                           Mismatch{"op", [](OpDescriptor& op) { op.op = ReduceOp::max; }},
                                           Mismatch{"count", [](OpDescriptor& op) { op.count = 99; }},
                                           Mismatch{"root", [](OpDescriptor& op) { op.root = 1; }},
                                           Mismatch{"sequence", [](OpDescriptor& op) { op.sequence = 8; }},
                                           Mismatch{"digest", [](OpDescriptor& op) { op.digest = 1; }}),
                         [](const auto& info) { return info.param.name; });

TEST(StreamFailure, DifferentAlgorithmsAreAMismatch) {
  StreamTestGroup group({.size = 2});
  const auto results = group.run([&](std::size_t rank, StreamTransport& streams, WaitScope& scope) {
    std::vector<std::byte> buffer(4000);
    return run(rank == 0 ? stream_ring : stream_small, all_reduce_call(buffer), streams, scope);
  });
  for (const Status& status : results) {
    EXPECT_EQ(status.code(), StatusCode::mismatch);
    EXPECT_THAT(status.message(), HasSubstr("rank 0 runs ring, rank 1 runs small"));
  }
}

// Rank 0's side of a connection whose other end the test plays.
class StreamToTest : public ::testing::Test {
 protected:
  StreamToTest() : stop_fd_(::eventfd(0, EFD_CLOEXEC)) {
    auto [ours, theirs] = stream_test::connected_pair(stream_test::LinkKind::tcp);
    std::vector<std::vector<Channel>> connections(2);
    connections[1].push_back(std::move(ours));
    streams_ = std::make_unique<StreamTransport>(0, std::move(connections));
    theirs_ = std::move(theirs);
  }

  void send(std::span<const std::byte> bytes) { ASSERT_TRUE(send_all(theirs_.get(), bytes, Deadline::after(5s)).ok()); }
  Status small_all_reduce() {
    TestScope scope(stop_, stop_fd_.get(), Deadline::after(10s));
    return run(stream_small, all_reduce_call(buffer_), *streams_, scope);
  }

  const std::atomic<bool> stop_{false};
  UniqueFd stop_fd_;
  std::unique_ptr<StreamTransport> streams_;
  UniqueFd theirs_;
  std::vector<std::byte> buffer_ = std::vector<std::byte>(400);
};

TEST_F(StreamToTest, GarbageIsAProtocolErrorThatNamesTheRank) {
  const std::string garbage(64, 'x');
  send(std::as_bytes(std::span(garbage)));
  const Status status = small_all_reduce();
  EXPECT_EQ(status.code(), StatusCode::protocol_error);
  EXPECT_THAT(status.message(), HasSubstr("rank 1"));
}

TEST_F(StreamToTest, AConnectionThatClosesInTheMiddleOfTheBytesNamesTheRank) {
  const StreamHeader header{.algorithm = StreamAlgorithm::small, .descriptor = all_reduce_call(buffer_).descriptor};
  send(format_stream_header(header));
  send(std::span(buffer_).first(200));
  ASSERT_EQ(::shutdown(theirs_.get(), SHUT_WR), 0);
  const Status status = small_all_reduce();
  EXPECT_EQ(status.code(), StatusCode::peer_lost);
  EXPECT_EQ(status.message(), "rank 1 closed its data connection");
}

struct FailingAlgorithm {
  const char* name;
  StreamFunction function;
};

class StreamFailureOf : public ::testing::TestWithParam<FailingAlgorithm> {};

TEST_P(StreamFailureOf, APeerThatNeverTakesPartIsNamedAtTheDeadline) {
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{400}, kLarge}) {
    StreamTestGroup group({.size = 3});
    const auto results = group.run(
        [&](std::size_t, StreamTransport& streams, WaitScope& scope) {
          std::vector<std::byte> buffer(bytes);
          return run(GetParam().function, all_reduce_call(buffer), streams, scope);
        },
        300ms, {0, 1});
    EXPECT_EQ(results[0].code(), StatusCode::timed_out);
    EXPECT_THAT(results[0].message(), HasSubstr("2"));
    // In a ring, rank 1 receives from rank 0 first, and waits for rank 2 only to send.
    if (bytes == kLarge || GetParam().function != stream_ring) {
      EXPECT_EQ(results[1].code(), StatusCode::timed_out);
      EXPECT_THAT(results[1].message(), HasSubstr("2"));
    }
  }
}

TEST_P(StreamFailureOf, APeerThatDiesWhileOthersWaitIsNamed) {
  StreamTestGroup group({.size = 3});
  const auto started = Deadline::Clock::now();
  std::thread death([&] {
    group.await_waiting_rank();
    group.close(2);
  });
  const auto results = group.run(
      [&](std::size_t, StreamTransport& streams, WaitScope& scope) {
        std::vector<std::byte> buffer(kLarge);
        Status status = run(GetParam().function, all_reduce_call(buffer), streams, scope);
        group.stop();  // as the group does when one of its ranks reports a failure
        return status;
      },
      60s, {0, 1});
  death.join();
  EXPECT_LT(Deadline::Clock::now() - started, 20s);
  const auto lost_2 = [](const Status& status) {
    return status.code() == StatusCode::peer_lost && status.message().find("rank 2") != std::string::npos;
  };
  EXPECT_TRUE(lost_2(results[0]) || lost_2(results[1])) << results[0].to_string() << "; " << results[1].to_string();
  for (const std::size_t rank : {0, 1}) {
    EXPECT_THAT(results[rank].code(), AnyOf(StatusCode::peer_lost, StatusCode::aborted));
  }
}

TEST_P(StreamFailureOf, StopEndsTheWait) {
  StreamTestGroup group({.size = 3});
  std::thread stopper([&] {
    group.await_waiting_rank();
    group.stop();
  });
  const auto started = Deadline::Clock::now();
  const auto results = group.run(
      [&](std::size_t, StreamTransport& streams, WaitScope& scope) {
        std::vector<std::byte> buffer(kLarge);
        return run(GetParam().function, all_reduce_call(buffer), streams, scope);
      },
      60s, {0, 1});
  stopper.join();
  EXPECT_LT(Deadline::Clock::now() - started, 20s);
  EXPECT_EQ(results[0].code(), StatusCode::aborted);
  EXPECT_EQ(results[1].code(), StatusCode::aborted);
}

INSTANTIATE_TEST_SUITE_P(Algorithms, StreamFailureOf,
                         ::testing::Values(FailingAlgorithm{"ring", stream_ring},
                                           FailingAlgorithm{"direct", stream_direct},
                                           FailingAlgorithm{"small", stream_small}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace lockstep
