#include "communicator/peer_progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

OpDescriptor operation(std::uint64_t sequence, OperationKind kind = OperationKind::all_reduce) {
  return {.sequence = sequence, .kind = kind, .dtype = DType::f32, .count = 10};
}

// Rank 1 of three.
class PeerProgressTest : public ::testing::Test {
 protected:
  static Topology topology() {
    std::vector<Member> members;
    for (int rank = 0; rank < 3; ++rank) members.push_back({.rank = rank, .host = "node", .pid = 100 + rank});
    return make_topology(1, std::move(members));
  }
  const Topology topology_ = topology();
  PeerProgress progress_{topology_};
};

TEST_F(PeerProgressTest, NamesThePeersThatHaveNotReachedAnOperation) {
  EXPECT_THAT(progress_.not_yet_at(1), ElementsAre(0, 2));
  progress_.on_heartbeat(0, {.completed = 3, .waiting = {}});
  EXPECT_THAT(progress_.not_yet_at(3), ElementsAre(2));
  progress_.on_heartbeat(2, {.completed = 3, .waiting = operation(4)});
  EXPECT_THAT(progress_.not_yet_at(4), ElementsAre(0)) << "a peer that waits in it has reached it";
  EXPECT_THAT(progress_.not_yet_at(3), IsEmpty());
}

TEST_F(PeerProgressTest, APeerThatLeftIsExpectedOnlyUpToItsLastOperation) {
  EXPECT_TRUE(progress_.expect_all(100).ok());
  progress_.on_goodbye(2, {.completed = 7});
  EXPECT_TRUE(progress_.has_left(2));
  EXPECT_TRUE(progress_.expect_all(7).ok());
  const Status status = progress_.expect_all(8);
  EXPECT_EQ(status.code(), StatusCode::peer_lost);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("rank 2 (host node, pid 102)"), HasSubstr("#7"), HasSubstr("#8")));
}

TEST_F(PeerProgressTest, APeerInADifferentOperationOfTheSameNumberIsAMismatch) {
  progress_.on_heartbeat(0, {.completed = 4, .waiting = operation(5)});
  EXPECT_TRUE(progress_.compare(operation(5)).ok());
  EXPECT_TRUE(progress_.compare(operation(6, OperationKind::broadcast)).ok()) << "it may still reach that one";
  const Status status = progress_.compare(operation(5, OperationKind::broadcast));
  EXPECT_EQ(status.code(), StatusCode::mismatch);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("rank 0 called all_reduce"), HasSubstr("rank 1 called broadcast")));
}

TEST_F(PeerProgressTest, HeartbeatsReportTheLastOperationAndTheOneThatWaits) {
  progress_.set_completed(operation(1));
  progress_.set_completed(operation(2));
  progress_.set_waiting(operation(3));
  EXPECT_EQ(progress_.heartbeat().completed, 2U);
  EXPECT_EQ(progress_.heartbeat().waiting, operation(3));
  progress_.set_waiting(std::nullopt);
  EXPECT_EQ(progress_.heartbeat().waiting, std::nullopt);
  EXPECT_EQ(progress_.goodbye().completed, 2U);
}

TEST_F(PeerProgressTest, OnlyAMismatchListsTheLastThreeOperations) {
  const Status mismatch(StatusCode::mismatch, "different operations");
  EXPECT_EQ(progress_.with_history(mismatch).message(), "different operations") << "nothing was called before";
  for (std::uint64_t sequence = 1; sequence <= 4; ++sequence) progress_.set_completed(operation(sequence));
  EXPECT_THAT(progress_.with_history(mismatch).message(),
              AllOf(HasSubstr("#2"), HasSubstr("#3"), HasSubstr("#4"), Not(HasSubstr("#1"))));
  EXPECT_EQ(progress_.with_history(Status(StatusCode::timed_out, "late")).message(), "late");
}

TEST_F(PeerProgressTest, APeerThatIsGoneStaysGone) {
  EXPECT_FALSE(progress_.is_gone(2));
  progress_.set_gone(2);
  progress_.on_heartbeat(2, {.completed = 1, .waiting = {}});
  EXPECT_TRUE(progress_.is_gone(2));
  EXPECT_FALSE(progress_.is_gone(0));
}

}  // namespace
}  // namespace lockstep
