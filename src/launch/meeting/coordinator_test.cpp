#include "launch/meeting/coordinator.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::launch {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A store and a clock for a coordinator "a".
class CoordinatorTest : public ::testing::Test {
 protected:
  CoordinatorTest() { open({}); }

  void open(const JobState& known) {
    coordinator_.emplace(record("a"), job_, known, CoordinatorOptions{.last_call_timeout = 30s, .silent_timeout = 10s},
                         now_);
  }
  void job_of(int min, int max, bool elastic = false) {
    job_ = {.run_id = "job", .min_nodes = min, .max_nodes = max, .elastic = elastic};
    for (auto& [id, state] : states_) state.job = job_;
    open({});
  }

  static NodeRecord record(const std::string& id) {
    return {.id = id, .host = "host-" + id, .pid = 1, .nproc = 1, .address = id + ":1"};
  }
  NodeState& state(const std::string& id) {
    const auto [found, is_new] = states_.try_emplace(id);
    if (is_new) {
      found->second.record = record(id);
      found->second.job = job_;
      found->second.wants_round = true;
    }
    return found->second;
  }
  // These nodes are alive and send a heartbeat.
  void update(const std::vector<std::string>& beating, std::chrono::milliseconds later = 50ms) {
    now_ += later;
    for (const auto& id : beating) {
      NodeState& one = state(id);
      if (accepts_) one.accepted = job_state().round.id;  // it has read it since the last update
      pairs_[kBeatPrefix + id] = std::to_string(++beat_);
    }
    for (const auto& [id, state] : states_) pairs_[kNodePrefix + id] = format(state);
    coordinator_->update(pairs_, now_, [&](const membership::Member& node) -> std::optional<membership::Attestation> {
      const auto found = attested_.find(node.id);
      if (found == attested_.end()) return std::nullopt;
      return membership::Attestation{.accepted = found->second};
    });
  }
  void close_connection(const std::string& id) {
    pairs_[fmt::format("{}{}/{}", kGonePrefix, id, state(id).connection)] = "gone";
  }
  // These nodes enter the round that has begun.
  void enter(const std::vector<std::string>& ids) {
    for (const auto& id : ids) {
      state(id).round = job_state().round.number;
      state(id).wants_round = false;
    }
  }
  std::vector<std::string> nodes() const {
    std::vector<std::string> ids;
    for (const auto& node : job_state().round.nodes) ids.push_back(node.id);
    return ids;
  }
  const JobState& job_state() const { return coordinator_->job_state(); }

  JobConfig job_{.run_id = "job", .min_nodes = 2, .max_nodes = 2};
  Coordinator::Clock::time_point now_{std::chrono::hours(1)};
  std::map<std::string, NodeState> states_;
  std::map<std::string, std::string> pairs_;
  std::map<std::string, std::vector<membership::Generation>> attested_;  // ends, and what they had accepted
  bool accepts_ = true;                                                  // nodes accept the rounds that are decided
  int beat_ = 0;
  std::optional<Coordinator> coordinator_;
};

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

// What a node of a round with `nodes` knew when its coordinator was lost.
JobState known_round(const std::vector<NodeRecord>& nodes) {
  JobState known;
  known.term = 4;
  known.restarts = 2;
  known.round = {.number = 3, .id = "r3", .master = "x:1", .nodes = nodes};
  known.established = known.round;
  return known;
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
