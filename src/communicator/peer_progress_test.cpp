#include "communicator/peer_progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>

#include "base/shared_memory.h"

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
  static Topology topology(int me) {
    std::vector<Member> members;
    for (int rank = 0; rank < 3; ++rank) {
      members.push_back({.rank = rank, .host = "node", .pid = 100 + rank, .host_index = rank / 2});
    }
    return make_topology(me, std::move(members));
  }
  // Ranks 0 and 1 share a host, so rank 1 sees what rank 0 writes; rank 2 is on another.
  void SetUp() override {
    auto memory = std::shared_ptr<SharedMemory>(value_or_throw(SharedMemory::create(HostArena::bytes(2, 3), "test")));
    const HostArena arena(memory, memory->data(), 2, 3);
    progress_.emplace(topology_, arena);
    rank0_.emplace(other_topology_, arena);
  }
  const Topology topology_ = topology(1);
  const Topology other_topology_ = topology(0);
  std::optional<PeerProgress> progress_;
  std::optional<PeerProgress> rank0_;
};

TEST_F(PeerProgressTest, NamesThePeersThatHaveNotReachedAnOperation) {
  EXPECT_THAT(progress_->not_yet_at(1), ElementsAre(0, 2));
  rank0_->set_completed(operation(3));
  EXPECT_THAT(progress_->not_yet_at(3), ElementsAre(2));
  EXPECT_TRUE(progress_->learn({.rank = 2, .version = 2, .completed = 3, .left = false, .waiting = operation(4)}));
  EXPECT_THAT(progress_->not_yet_at(4), ElementsAre(0)) << "a peer that waits in it has reached it";
  EXPECT_THAT(progress_->not_yet_at(3), IsEmpty());
}

TEST_F(PeerProgressTest, APeerThatLeftIsExpectedOnlyUpToItsLastOperation) {
  EXPECT_TRUE(progress_->expect_all(100).ok());
  EXPECT_TRUE(progress_->learn({.rank = 2, .version = 0, .completed = 7, .left = true, .waiting = {}}));
  EXPECT_TRUE(progress_->has_left(2));
  EXPECT_TRUE(progress_->expect_all(7).ok());
  const Status status = progress_->expect_all(8);
  EXPECT_EQ(status.code(), StatusCode::peer_lost);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("rank 2 (host node, pid 102)"), HasSubstr("#7"), HasSubstr("#8")));
  rank0_->set_left();
  EXPECT_THAT(progress_->expect_all(7).message(), HasSubstr("rank 0 (host node, pid 100)"));
}

TEST_F(PeerProgressTest, APeerInADifferentOperationOfTheSameNumberIsAMismatch) {
  rank0_->set_waiting(operation(5));
  EXPECT_TRUE(progress_->compare(operation(5)).ok());
  EXPECT_TRUE(progress_->compare(operation(6, OperationKind::broadcast)).ok()) << "it may still reach that one";
  const Status status = progress_->compare(operation(5, OperationKind::broadcast));
  EXPECT_EQ(status.code(), StatusCode::mismatch);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("rank 0 called all_reduce"), HasSubstr("rank 1 called broadcast")));
}

TEST_F(PeerProgressTest, APeerThatWaitsInAnotherOperationThanWasCompletedHereIsAMismatch) {
  progress_->set_completed(operation(5, OperationKind::broadcast));  // its root does not wait for the others
  rank0_->set_waiting(operation(5));
  for (const Status& status : {progress_->compare(operation(6)), progress_->compare_completed()}) {
    EXPECT_EQ(status.code(), StatusCode::mismatch);
    EXPECT_THAT(status.message(), AllOf(HasSubstr("rank 0 called all_reduce"), HasSubstr("rank 1 called broadcast")));
  }
  rank0_->set_waiting(operation(5, OperationKind::broadcast));
  EXPECT_TRUE(progress_->compare_completed().ok()) << "it is only late";
  rank0_->set_waiting(operation(6));
  EXPECT_TRUE(progress_->compare_completed().ok());
}

TEST_F(PeerProgressTest, AReportHasTheLastOperationAndTheOneThatWaits) {
  EXPECT_FALSE(progress_->any_waits());
  rank0_->set_completed(operation(1));
  rank0_->set_completed(operation(2));
  rank0_->set_waiting(operation(3));
  EXPECT_TRUE(progress_->any_waits());
  EXPECT_EQ(progress_->report(0).completed, 2U);
  EXPECT_EQ(progress_->report(0).waiting, operation(3));
  const auto version = progress_->report(0).version;
  rank0_->set_waiting(std::nullopt);
  EXPECT_EQ(progress_->report(0).waiting, std::nullopt);
  EXPECT_GT(progress_->report(0).version, version);
}

TEST_F(PeerProgressTest, OnlyNewsIsLearned) {
  const RankReport newer{.rank = 2, .version = 4, .completed = 9, .left = false, .waiting = operation(10)};
  EXPECT_TRUE(progress_->learn(newer));
  EXPECT_FALSE(progress_->learn(newer)) << "it came on another path, too";
  EXPECT_FALSE(progress_->learn({.rank = 2, .version = 2, .completed = 8, .left = false, .waiting = operation(9)}));
  EXPECT_EQ(progress_->report(2), newer) << "an older report was overtaken";
  EXPECT_FALSE(progress_->learn({.rank = 0, .version = 4, .completed = 9, .left = false, .waiting = {}}))
      << "ranks of this host write their own state";
  EXPECT_FALSE(progress_->learn({.rank = 3, .version = 4, .completed = 9, .left = false, .waiting = {}}));
}

TEST_F(PeerProgressTest, OnlyAMismatchListsTheLastThreeOperations) {
  const Status mismatch(StatusCode::mismatch, "different operations");
  EXPECT_EQ(progress_->with_history(mismatch).message(), "different operations") << "nothing was called before";
  for (std::uint64_t sequence = 1; sequence <= 4; ++sequence) progress_->set_completed(operation(sequence));
  EXPECT_THAT(progress_->with_history(mismatch).message(),
              AllOf(HasSubstr("#2"), HasSubstr("#3"), HasSubstr("#4"), Not(HasSubstr("#1"))));
  EXPECT_EQ(progress_->with_history(Status(StatusCode::timed_out, "late")).message(), "late");
}

TEST_F(PeerProgressTest, APeerThatIsGoneStaysGone) {
  EXPECT_FALSE(progress_->is_gone(2));
  progress_->set_gone(2);
  progress_->learn({.rank = 2, .version = 0, .completed = 1, .left = false, .waiting = {}});
  EXPECT_TRUE(progress_->is_gone(2));
  EXPECT_TRUE(rank0_->is_gone(2)) << "all ranks of the host know";
  EXPECT_FALSE(progress_->is_gone(0));
}

}  // namespace
}  // namespace lockstep
