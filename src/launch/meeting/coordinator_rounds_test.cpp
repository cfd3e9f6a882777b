// Which rounds count when a coordinator decides the next one.
#include "launch/testing/coordinator_test_base.h"

#include <gmock/gmock.h>

namespace lockstep::launch {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST_F(CoordinatorTest, TheCoordinatorAdoptsALaterRoundThatANodeKnows) {
  job_of(1, 3);
  open(known_round({record("x"), record("a"), record("b")}));
  auto& later = state("b");
  later.known_round = {
      .number = 4, .id = "r4", .master = "x:1", .nodes = {record("x"), record("b"), record("a"), record("c")}};
  later.restarts = 3;
  update({"a", "b"});
  EXPECT_EQ(job_state().round.number, 4);
  EXPECT_EQ(job_state().restarts, 3);
  EXPECT_THAT(nodes(), ElementsAre("x", "b", "a", "c"));
}

TEST_F(CoordinatorTest, ARoundIsEstablishedWhenAllOfItsNodesHaveAcceptedIt) {
  accepts_ = false;
  update({"a", "b"});
  EXPECT_EQ(job_state().round.number, 0);
  EXPECT_TRUE(coordinator_->is_forming());
  state("a").accepted = job_state().round.id;
  update({"a", "b"});
  EXPECT_TRUE(coordinator_->is_forming());
  state("b").accepted = job_state().round.id;
  update({"a", "b"});
  EXPECT_EQ(job_state().established.id, job_state().round.id);
}

TEST_F(CoordinatorTest, ARoundThatLosesANodeBeforeItIsEstablishedIsReplaced) {
  job_of(1, 3);
  accepts_ = false;
  update({"a", "b", "c"});
  const std::string first = job_state().round.id;
  close_connection("c");
  update({"a", "b"});
  EXPECT_EQ(job_state().round.id, first);  // c may have accepted it: the last call, in case it returns
  update({"a", "b"}, 5s);
  for (int i = 0; i < 6; ++i) update({"a", "b"}, 5s);
  EXPECT_EQ(job_state().round.number, 1);
  EXPECT_THAT(nodes(), ElementsAre("a", "b"));
  EXPECT_EQ(job_state().round.base, -1);
}

TEST_F(CoordinatorTest, WhatAnEndedNodeHadAcceptedNeedsAQuorumToo) {
  job_of(1, 3);
  open(known_round({record("x"), record("a"), record("b")}));
  // x and b continued without this node, and then x ended: b alone may go on.
  attested_["x"] = {{.number = 5, .id = "r4", .members = {{.id = "x"}, {.id = "b"}}}};
  update({"a"});
  EXPECT_FALSE(job_state().official);
  EXPECT_EQ(job_state().others.size(), 1U);
  for (int i = 0; i < 10; ++i) update({"a"}, 5s);
  EXPECT_EQ(job_state().round.number, 3);
  // The next coordinator on this node inherits both facts.
  attested_.clear();
  const JobState known = job_state();
  open(known);
  update({"a"});
  EXPECT_FALSE(job_state().official);
}

// x and b trained in round 4. Then x accepted round 5 with the newcomer n, which never did, and both ended.
TEST_F(CoordinatorTest, AVoidRoundDoesNotHideAnOlderOne) {
  job_of(1, 3);
  open(known_round({record("a"), record("b"), record("x")}));
  const membership::Generation fourth{.number = 5, .id = "r4", .members = {{.id = "x"}, {.id = "b"}}};
  attested_["x"] = {{.number = 6, .id = "r5", .members = {{.id = "x"}, {.id = "n"}}}, fourth};
  attested_["n"] = {};
  for (int i = 0; i < 10; ++i) update({"a"}, 5s);
  EXPECT_FALSE(job_state().official) << "b may continue alone";
  EXPECT_EQ(job_state().round.number, 3);
  // The next coordinator on this node inherits that.
  attested_.clear();
  const JobState known = *parse_job_state(format(job_state()));
  open(known);
  for (int i = 0; i < 10; ++i) update({"a"}, 5s);
  EXPECT_FALSE(job_state().official);
  state("a").round = state("b").round = 3;
  for (int i = 0; i < 10; ++i) update({"a", "b"}, 5s);
  EXPECT_TRUE(job_state().official) << job_state().progress;
  EXPECT_EQ(job_state().round.number, 6);
}

TEST_F(CoordinatorTest, WhatAnAttestationMayNotShowIsNotIgnored) {
  job_of(1, 3);
  const auto is_official_after = [&](std::size_t accepted) {
    open(known_round({record("a"), record("b"), record("x")}));
    attested_["n"] = attested_["x"] = {};
    for (std::size_t i = accepted; i > 0; --i) {
      attested_["x"].push_back({.number = static_cast<std::int64_t>(i) + 4,
                                .id = "void" + std::to_string(i),
                                .members = {{.id = "y"}, {.id = "x"}, {.id = "n"}}});
    }
    for (int i = 0; i < 10; ++i) update({"a"}, 5s);
    return job_state().official;
  };
  EXPECT_TRUE(is_official_after(membership::Attestation::kGenerations - 1));
  EXPECT_FALSE(is_official_after(membership::Attestation::kGenerations));
}

// b does not accept the round that this node decides, because it is lost. So it may still continue from round 4.
TEST_F(CoordinatorTest, ARoundDoesNotReplaceTheOthersBeforeItIsEstablished) {
  job_of(1, 4);
  open(known_round({record("x"), record("a"), record("b")}));
  attested_["x"] = {{.number = 5, .id = "r4", .members = {{.id = "x"}, {.id = "b"}, {.id = "c"}}}};
  accepts_ = false;
  state("a").round = state("b").round = state("c").round = 3;
  for (int i = 0; i < 8; ++i) update({"a", "b", "c"}, 5s);
  EXPECT_EQ(job_state().round.number, 5);
  EXPECT_EQ(job_state().others.size(), 1U);
  accepts_ = true;
  update({"a", "b", "c"});
  update({"a", "b", "c"});
  EXPECT_EQ(job_state().established.number, 5);
  EXPECT_THAT(job_state().others, IsEmpty());
}

// x and the newcomer n accepted a round with this node, and ended before this node heard of it.
TEST_F(CoordinatorTest, TheEndOfANodeCountsThatOnlyTheRoundOfAnEndedNodeHas) {
  job_of(1, 3);
  open(known_round({record("x"), record("a"), record("b")}));
  attested_["x"] = {{.number = 5, .id = "r4", .members = {{.id = "x"}, {.id = "n"}, {.id = "a"}}}};
  for (int i = 0; i < 4; ++i) update({"a"}, 250ms);
  EXPECT_FALSE(job_state().official) << "n may be alive, and is the first of the two that are left";
  attested_["n"] = attested_["x"];
  for (int i = 0; i < 4; ++i) update({"a"}, 250ms);
  EXPECT_TRUE(job_state().official) << job_state().progress;
}

// x got the vote of the witness for a round with the newcomer n and this node; then both ended.
TEST_F(CoordinatorTest, TheEndOfANodeCountsThatOnlyTheVoteOfTheWitnessHas) {
  job_of(1, 3);
  JobState known = known_round({record("x"), record("a")});
  known.round.witness = known.established.witness = "w/job";
  open(known);
  const auto vote = [](const std::string& id) {
    return membership::Generation{.number = 5, .id = "r4", .members = {{.id = "x"}, {.id = id}, {.id = "a"}}};
  };
  coordinator_->set_witness(membership::WitnessView{.id = "w", .votes = {{"w/job", vote("n")}, {"w/y", vote("y")}}},
                            [](const auto&, const auto&) { return true; });
  attested_["x"] = attested_["n"] = attested_["y"] = {vote("n")};
  for (int i = 0; i < 4; ++i) update({"a"}, 250ms);
  EXPECT_THAT(job_state().ended, ElementsAre("n", "x")) << "the other register is that of another job";
  EXPECT_TRUE(job_state().official) << job_state().progress;
}

// x ended before it accepted round 4: that one can never be established, and its first node c is not needed.
TEST_F(CoordinatorTest, TheNextCoordinatorInheritsThatARoundIsVoid) {
  job_of(3, 4);
  JobState known = known_round({record("a"), record("b"), record("x")});
  known.round = {.number = 4,
                 .id = "r4",
                 .master = "x:1",
                 .nodes = {record("c"), record("x"), record("a")},
                 .base = 3,
                 .base_id = "r3"};
  open(known);
  attested_["x"] = {generation_of(known.established)};
  for (int i = 0; i < 4; ++i) update({"a", "b"}, 250ms);
  EXPECT_TRUE(job_state().official) << job_state().progress;
  attested_.clear();  // the guard of x has left
  known = *parse_job_state(format(job_state()));
  open(known);
  update({"a", "b"});
  EXPECT_TRUE(job_state().official) << job_state().progress;
}

TEST_F(CoordinatorTest, ARivalRoundOfTheSameNumberNeedsAQuorumToo) {
  job_of(1, 3);
  JobState known = known_round({record("x"), record("a"), record("b")});
  known.established = {};
  open(known);
  auto& rival = state("b");
  rival.known_round = {.number = 3, .id = "rival", .master = "b:1", .nodes = {record("x"), record("b"), record("c")}};
  rival.accepted = "rival";
  accepts_ = false;
  for (int i = 0; i < 10; ++i) update({"a", "b"}, 5s);
  EXPECT_EQ(job_state().round.number, 3);
  update({"a", "b", "c"});
  for (int i = 0; i < 10; ++i) update({"a", "b", "c"}, 5s);
  EXPECT_EQ(job_state().round.number, 4);
}

}  // namespace
}  // namespace lockstep::launch
