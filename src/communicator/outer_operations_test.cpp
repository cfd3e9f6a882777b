// The watch of three ranks of one process over the collectives of an engine that the test plays.
#include "communicator/outer_operations.h"

#include <gmock/gmock.h>

#include <thread>

#include "communicator/communicator_impl.h"

namespace lockstep {
namespace {

using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using Clock = Deadline::Clock;

OpDescriptor outer(std::uint64_t sequence, OperationKind kind = OperationKind::all_reduce) {
  return {.sequence = sequence, .kind = kind, .dtype = DType::f32, .count = 10};
}

class OuterOperationsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const auto& group : groups_) outer_.push_back(Communicator::Impl::watch_outer(*group));
  }
  // What rank `rank` finds out about an operation that it waits in, within 5 s; Ok: nothing.
  Status waits(std::size_t rank, const OpDescriptor& op, milliseconds timeout) {
    const auto issued = Clock::now();
    const Deadline end = Deadline::after(std::chrono::seconds(5));
    while (!end.expired()) {
      const Status verdict = outer_[rank]->look({{op, issued, Deadline::at(issued + timeout)}});
      if (!verdict.ok()) return verdict;
      std::this_thread::sleep_for(OuterOperations::kLook / 4);
    }
    return {};
  }
  static constexpr milliseconds kLong{60000};

  const std::vector<std::shared_ptr<Communicator>> groups_ = Communicator::create_threads(3);
  std::vector<std::unique_ptr<OuterOperations>> outer_;
};

TEST_F(OuterOperationsTest, ADeadlineNamesTheRanksThatAreMissing) {
  for (std::size_t rank = 0; rank < 3; ++rank) outer_[rank]->completed(outer(1));
  Status of_rank_0;
  std::thread other([&] { of_rank_0 = waits(0, outer(2), milliseconds(300)); });
  const Status of_rank_1 = waits(1, outer(2), milliseconds(300));
  other.join();
  for (const Status& status : {of_rank_0, of_rank_1}) {
    EXPECT_EQ(status.code(), StatusCode::timed_out);
    EXPECT_THAT(status.message(), AllOf(HasSubstr("all_reduce(count 10, f32, sum) #2"), HasSubstr("rank 2 ("),
                                        HasSubstr("did not reach this operation"), Not(HasSubstr("rank 0 (")),
                                        Not(HasSubstr("rank 1 ("))));
  }
}

TEST_F(OuterOperationsTest, AShortDeadlineDoesNotBlameARankThatWaitsToo) {
  Status of_rank_0;
  std::thread other([&] { of_rank_0 = waits(0, outer(1), milliseconds(1)); });
  const Status of_rank_1 = waits(1, outer(1), milliseconds(1));
  other.join();
  EXPECT_THAT(of_rank_0.message(), AllOf(HasSubstr("rank 2 ("), Not(HasSubstr("rank 1 ("))));
  EXPECT_THAT(of_rank_1.message(), AllOf(HasSubstr("rank 2 ("), Not(HasSubstr("rank 0 ("))));
}

TEST_F(OuterOperationsTest, IfAllRanksHaveReachedItTheEngineIsToBlame) {
  outer_[0]->completed(outer(1));
  outer_[2]->completed(outer(1));
  EXPECT_THAT(waits(1, outer(1), milliseconds(200)).message(),
              HasSubstr("all ranks have reached this operation, but it did not complete"));
}

TEST_F(OuterOperationsTest, RanksThatWaitInDifferentOperationsFindOut) {
  Status of_rank_0;
  std::thread other([&] { of_rank_0 = waits(0, outer(1), kLong); });
  const Status of_rank_1 = waits(1, outer(1, OperationKind::broadcast), kLong);
  other.join();
  for (const Status& status : {of_rank_0, of_rank_1}) {
    EXPECT_EQ(status.code(), StatusCode::mismatch);
    EXPECT_THAT(status.message(), AllOf(HasSubstr("rank 0 called all_reduce"), HasSubstr("rank 1 called broadcast")));
  }
}

TEST_F(OuterOperationsTest, ARankThatCompletedAnotherOperationFindsOutWhileItIsIdle) {
  outer_[0]->completed(outer(1, OperationKind::broadcast));  // the root of a broadcast waits for nobody
  EXPECT_TRUE(outer_[0]->look(std::nullopt).ok());
  Status of_rank_1;
  std::thread other([&] { of_rank_1 = waits(1, outer(1), milliseconds(1000)); });
  Status found;
  const Deadline end = Deadline::after(std::chrono::seconds(5));
  while (found.ok() && !end.expired()) found = outer_[0]->look(std::nullopt);
  other.join();
  EXPECT_EQ(found.code(), StatusCode::mismatch);
  EXPECT_THAT(found.message(), AllOf(HasSubstr("rank 0 called broadcast"), HasSubstr("rank 1 called all_reduce")));
}

TEST_F(OuterOperationsTest, ARankThatHasLeftIsNamedAtOnce) {
  outer_[2]->completed(outer(1));
  outer_[2]->leave();
  outer_[0]->completed(outer(1));
  const auto before = Clock::now();
  const Status status = waits(0, outer(2), kLong);
  EXPECT_EQ(status.code(), StatusCode::peer_lost);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("rank 2 ("), HasSubstr("has left the group"), HasSubstr("#1")));
  EXPECT_LT(Clock::now() - before, std::chrono::seconds(1));
}

TEST_F(OuterOperationsTest, ARankThatOnlyComesLateIsNoMismatch) {
  Status of_rank_1;
  std::thread other([&] { of_rank_1 = waits(1, outer(1), milliseconds(500)); });
  const Deadline end = Deadline::after(milliseconds(300));
  while (!end.expired()) EXPECT_TRUE(outer_[0]->look(std::nullopt).ok());
  outer_[0]->completed(outer(1));
  EXPECT_TRUE(outer_[0]->look({{outer(2), Clock::now() - milliseconds(200), Deadline::after(kLong)}}).ok());
  other.join();
}

}  // namespace
}  // namespace lockstep
