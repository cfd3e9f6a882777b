#include <gmock/gmock.h>

#include "launch/testing/coordinator_test_base.h"

namespace lockstep::launch {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST_F(CoordinatorTest, ARequestFromBeforeARoundDoesNotBeginTheNextOne) {
  update({"a", "b"});
  EXPECT_EQ(job_state().round.number, 0);
  update({"a", "b"});  // no node has entered yet
  EXPECT_EQ(job_state().round.number, 0);
  enter({"a", "b"});
  state("a").wants_round = true;
  update({"a", "b"});
  EXPECT_EQ(job_state().round.number, 0);
  state("b").wants_round = true;
  update({"a", "b"});
  EXPECT_EQ(job_state().round.number, 1);
}

TEST_F(CoordinatorTest, ASilentNodeIsLostAfterTheTimeoutButNotKnownToHaveEnded) {
  update({"a", "b"});
  enter({"a", "b"});
  for (int i = 0; i < 10; ++i) update({"a"}, 1s);
  EXPECT_THAT(job_state().lost, IsEmpty());
  update({"a"}, 1s);
  EXPECT_THAT(job_state().lost, ElementsAre("b"));
  EXPECT_THAT(job_state().ended, IsEmpty());
}

TEST_F(CoordinatorTest, AClosedConnectionIsALossAtOnceButOnlyAnAttestationIsAnEnd) {
  update({"a", "b"});
  enter({"a", "b"});
  close_connection("b");
  update({"a"});
  EXPECT_THAT(job_state().lost, ElementsAre("b"));
  EXPECT_THAT(job_state().ended, IsEmpty());
  attested_["b"] = {generation_of(job_state().round)};
  update({"a"}, 3s);
  EXPECT_THAT(job_state().ended, ElementsAre("b"));
  EXPECT_THAT(job_state().others, IsEmpty());
}

TEST_F(CoordinatorTest, ANodeThatReconnectsIsNotLostBecauseOfItsOldConnection) {
  update({"a", "b"});
  enter({"a", "b"});
  close_connection("b");
  state("b").connection = 1;
  update({"a", "b"});
  EXPECT_THAT(job_state().lost, IsEmpty());
}

// A launcher that was started at the address of an ended one, and is joined by a node of the running job.
TEST_F(CoordinatorTest, ACoordinatorThatLearnsOfARoundIsACandidateUntilItHasAQuorumOfIt) {
  job_of(2, 3);
  update({"a"});
  ASSERT_TRUE(job_state().official);
  state("b").term = job_state().term;
  state("b").known_round.number = 0;
  state("b").known_round.id = "r0";
  state("b").known_round.master = "b:1";
  for (const char* id : {"b", "c", "d"}) state("b").known_round.nodes.push_back(record(id));
  state("b").established = state("b").known_round;
  update({"a", "b"});
  EXPECT_EQ(job_state().round.id, "r0");
  EXPECT_FALSE(job_state().official) << "otherwise the others would wait for it";
}

TEST_F(CoordinatorTest, ACoordinatorThatWasStoppedConsidersNoNodeSilent) {
  update({"a", "b"});
  enter({"a", "b"});
  update({"a"}, 20s);
  EXPECT_THAT(job_state().lost, IsEmpty());
}

// It waits for the lost host again and again, longer than half of the silent timeout each time.
TEST_F(CoordinatorTest, ACoordinatorThatIsOftenAwayNoticesASilentNode) {
  update({"a", "b"});
  enter({"a", "b"});
  for (int turn = 0; turn < 8; ++turn) {
    update({"a"}, 6s);
    update({"a"}, 2s);
  }
  EXPECT_THAT(job_state().lost, ElementsAre("b"));
}

// It searches for another coordinator among many hosts that do not answer.
TEST_F(CoordinatorTest, ACoordinatorThatIsAlwaysAwayNoticesASilentNode) {
  update({"a", "b"});
  enter({"a", "b"});
  for (int turn = 0; turn < 4; ++turn) update({"a"}, 6s);
  EXPECT_THAT(job_state().lost, ElementsAre("b"));
}

TEST_F(CoordinatorTest, ANodeThatFinishedAndLeftIsNotLost) {
  update({"a", "b"});
  enter({"a", "b"});
  state("b").finished = true;
  update({"a", "b"});
  EXPECT_THAT(job_state().finished, ElementsAre("b"));
  state("b").left = true;
  update({"a"});
  EXPECT_THAT(job_state().lost, IsEmpty());
  EXPECT_THAT(job_state().finished, ElementsAre("b"));
}

TEST_F(CoordinatorTest, AClaimOfANodeRankWaitsUntilItsHolderIsKnownAliveOrLost) {
  job_of(1, 2);
  state("a").record.node_rank = 0;
  state("b").record.node_rank = 1;
  update({"a", "b"});
  enter({"a", "b"});
  // b has just died with its host, undetected; its successor arrives.
  state("c").record.node_rank = 1;
  update({"a", "c"});
  EXPECT_THAT(coordinator_->refusals(), IsEmpty());
  for (int i = 0; i < 11; ++i) update({"a", "c"}, 1s);
  EXPECT_THAT(job_state().lost, ElementsAre("b"));
  EXPECT_THAT(coordinator_->refusals(), IsEmpty());
  // Another node claims the rank of c, which is alive.
  state("d").record.node_rank = 1;
  update({"a", "c", "d"});
  update({"a", "c", "d"});
  ASSERT_TRUE(coordinator_->refusals().contains("d"));
  EXPECT_THAT(coordinator_->refusals().at("d"), HasSubstr("claimed twice"));
}

TEST_F(CoordinatorTest, AnotherVersionIsRefusedAndNamed) {
  state("b");
  update({"a", "b"}, 0ms);
  pairs_[kNodePrefix + "z"] = std::string("LSLN\x07\x00\x01\x00", 8);
  coordinator_->update(pairs_, now_, [](const membership::Member&) { return std::nullopt; });
  EXPECT_THAT(coordinator_->refusals().at("z"), HasSubstr("protocol version 7"));
}

TEST_F(CoordinatorTest, WithoutElasticARestartIsCountedOncePerRound) {
  update({"a", "b"});
  enter({"a", "b"});
  state("a").restart_asks = 1;
  state("b").restart_asks = 1;
  update({"a", "b"});
  EXPECT_EQ(job_state().restarts, 1);
  EXPECT_EQ(job_state().counted.at("a"), 1U);
  EXPECT_EQ(job_state().counted.at("b"), 1U);
}

TEST_F(CoordinatorTest, WithElasticEveryReplacementIsCounted) {
  job_of(1, 3, true);
  update({"a", "b", "c"});
  enter({"a", "b", "c"});
  state("a").restart_asks = 2;
  state("b").restart_asks = 1;
  update({"a", "b", "c"});
  EXPECT_EQ(job_state().restarts, 3);
}

TEST_F(CoordinatorTest, ARestartThatTheLastCoordinatorCountedIsNotCountedAgain) {
  job_of(1, 3);
  update({"a", "b", "c"});
  enter({"a", "b", "c"});
  state("b").restart_asks = 1;
  state("b").counted_asks = 1;  // the last coordinator informed b, but not this one
  state("b").restarts = 1;
  state("c").restart_asks = 1;  // saw the same failure
  state("b").counted_round = 0;
  update({"a", "b", "c"});
  EXPECT_EQ(job_state().restarts, 1);
  EXPECT_EQ(job_state().counted.at("c"), 1U);
}

TEST_F(CoordinatorTest, ANewCoordinatorNeedsAQuorumForItsTerm) {
  job_of(1, 3);
  open(known_round({record("x"), record("a"), record("b")}));
  enter({"a"});
  update({"a"});
  EXPECT_FALSE(job_state().official);
  EXPECT_EQ(job_state().term, 4);
  EXPECT_THAT(job_state().lost, IsEmpty());  // they may still join
  enter({"b"});
  update({"a", "b"});
  EXPECT_TRUE(job_state().official);
  EXPECT_EQ(job_state().term, 5);
  EXPECT_EQ(job_state().restarts, 2);
  // x does not join.
  for (int i = 0; i < 11; ++i) update({"a", "b"}, 1s);
  EXPECT_THAT(job_state().lost, ElementsAre("x"));
}

TEST_F(CoordinatorTest, ACoordinatorThatEndedIsLostAtOnce) {
  job_of(1, 3);
  open(known_round({record("x"), record("a"), record("b")}));
  attested_["x"] = {generation_of(job_state().round)};
  update({"a"});
  EXPECT_THAT(job_state().lost, ElementsAre("x"));
  EXPECT_TRUE(job_state().official);  // half of the living nodes, including the first
}

TEST_F(CoordinatorTest, ANodeThatJoinsAndLeavesNeverStopsAnElasticJob) {
  job_of(1, 3, true);
  update({"a", "b", "c"});
  enter({"a", "b", "c"});
  for (int i = 1; i <= 3; ++i) {
    close_connection("c");
    update({"a", "b"});
    update({"a", "b"});
    EXPECT_THAT(nodes(), ElementsAre("a", "b"));
    enter({"a", "b"});
    state("c").connection = static_cast<std::uint64_t>(i);
    state("c").wants_round = true;
    update({"a", "b", "c"});
    EXPECT_THAT(nodes(), ElementsAre("a", "b", "c"));
    enter({"a", "b", "c"});
  }
}

}  // namespace
}  // namespace lockstep::launch
