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

// A store and a clock for a keeper called "a".
class Keepers : public ::testing::Test {
 protected:
  Keepers() { open({}); }

  void open(const JobState& known) {
    keeper_.emplace(record("a"), job_, known, CoordinatorOptions{.last_call = 30s, .silent_timeout = 10s}, now_);
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
  // The nodes are there, and say so.
  void update(const std::vector<std::string>& beating, std::chrono::milliseconds later = 50ms) {
    now_ += later;
    for (const auto& id : beating) {
      state(id);
      pairs_[kBeatPrefix + id] = std::to_string(++beat_);
    }
    for (const auto& [id, state] : states_) pairs_[kNodePrefix + id] = format(state);
    keeper_->update(pairs_, now_, [&](const std::string& address) { return refusing_.contains(address); });
  }
  void close_connection(const std::string& id) {
    pairs_[fmt::format("{}{}/{}", kGonePrefix, id, state(id).connection)] = "gone";
  }
  // They have entered the round that has begun.
  void enter(const std::vector<std::string>& ids) {
    for (const auto& id : ids) {
      state(id).round = hall().round.number;
      state(id).wants_round = false;
    }
  }
  std::vector<std::string> nodes() const {
    std::vector<std::string> ids;
    for (const auto& node : hall().round.nodes) ids.push_back(node.id);
    return ids;
  }
  const JobState& hall() const { return keeper_->hall(); }

  JobConfig job_{.run_id = "job", .min_nodes = 2, .max_nodes = 2};
  Coordinator::Clock::time_point now_{std::chrono::hours(1)};
  std::map<std::string, NodeState> states_;
  std::map<std::string, std::string> pairs_;
  std::set<std::string> refusing_;
  int beat_ = 0;
  std::optional<Coordinator> keeper_;
};

TEST_F(Keepers, WhatWasWrittenBeforeARoundDoesNotBeginTheNextOne) {
  update({"a", "b"});
  EXPECT_EQ(hall().round.number, 0);
  update({"a", "b"});  // nobody has entered yet
  EXPECT_EQ(hall().round.number, 0);
  enter({"a", "b"});
  state("a").wants_round = true;
  update({"a", "b"});
  EXPECT_EQ(hall().round.number, 0);
  state("b").wants_round = true;
  update({"a", "b"});
  EXPECT_EQ(hall().round.number, 1);
}

TEST_F(Keepers, ASilentNodeIsLostAfterTheLimitAndNotKnownToHaveEnded) {
  update({"a", "b"});
  enter({"a", "b"});
  for (int i = 0; i < 10; ++i) update({"a"}, 1s);
  EXPECT_THAT(hall().lost, IsEmpty());
  update({"a"}, 1s);
  EXPECT_THAT(hall().lost, ElementsAre("b"));
  EXPECT_THAT(hall().ended, IsEmpty());
}

TEST_F(Keepers, AClosedConnectionIsALossAtOnceAndARefusingPortAnEnd) {
  update({"a", "b"});
  enter({"a", "b"});
  close_connection("b");
  update({"a"});
  EXPECT_THAT(hall().lost, ElementsAre("b"));
  EXPECT_THAT(hall().ended, IsEmpty());
  refusing_.insert("b:1");
  update({"a"}, 3s);
  EXPECT_THAT(hall().ended, ElementsAre("b"));
}

TEST_F(Keepers, ANodeThatConnectsAgainIsNotDeadBecauseOfItsOldConnection) {
  update({"a", "b"});
  enter({"a", "b"});
  close_connection("b");
  state("b").connection = 1;
  update({"a", "b"});
  EXPECT_THAT(hall().lost, IsEmpty());
}

TEST_F(Keepers, AKeeperThatWasStoppedItselfTakesNobodyForSilent) {
  update({"a", "b"});
  enter({"a", "b"});
  update({"a"}, 20s);
  EXPECT_THAT(hall().lost, IsEmpty());
}

TEST_F(Keepers, ANodeThatFinishedAndLeftIsNotLost) {
  update({"a", "b"});
  enter({"a", "b"});
  state("b").finished = true;
  update({"a", "b"});
  EXPECT_THAT(hall().finished, ElementsAre("b"));
  state("b").left = true;
  update({"a"});
  EXPECT_THAT(hall().lost, IsEmpty());
  EXPECT_THAT(hall().finished, ElementsAre("b"));
}

TEST_F(Keepers, AClaimOfANodeRankWaitsUntilItsHolderLivesOrNot) {
  job_of(1, 2);
  state("a").record.node_rank = 0;
  state("b").record.node_rank = 1;
  update({"a", "b"});
  enter({"a", "b"});
  // b died with its host a moment ago, nobody knows yet; its successor comes.
  state("c").record.node_rank = 1;
  update({"a", "c"});
  EXPECT_THAT(keeper_->refusals(), IsEmpty());
  for (int i = 0; i < 11; ++i) update({"a", "c"}, 1s);
  EXPECT_THAT(hall().lost, ElementsAre("b"));
  EXPECT_THAT(keeper_->refusals(), IsEmpty());
  // Another one claims what c has, and c lives.
  state("d").record.node_rank = 1;
  update({"a", "c", "d"});
  update({"a", "c", "d"});
  ASSERT_TRUE(keeper_->refusals().contains("d"));
  EXPECT_THAT(keeper_->refusals().at("d"), HasSubstr("claimed twice"));
}

TEST_F(Keepers, AnotherVersionIsRefusedByName) {
  state("b");
  update({"a", "b"}, 0ms);
  pairs_[kNodePrefix + "z"] = std::string("LSLN\x07\x00\x01\x00", 8);
  keeper_->update(pairs_, now_, [](const std::string&) { return false; });
  EXPECT_THAT(keeper_->refusals().at("z"), HasSubstr("protocol version 7"));
}

TEST_F(Keepers, WithoutElasticARoundIsCountedOnce) {
  update({"a", "b"});
  enter({"a", "b"});
  state("a").restart_asks = 1;
  state("b").restart_asks = 1;
  update({"a", "b"});
  EXPECT_EQ(hall().restarts, 1);
  EXPECT_EQ(hall().counted.at("a"), 1U);
  EXPECT_EQ(hall().counted.at("b"), 1U);
}

TEST_F(Keepers, WithElasticEveryReplacementIsCounted) {
  job_of(1, 3, true);
  update({"a", "b", "c"});
  enter({"a", "b", "c"});
  state("a").restart_asks = 2;
  state("b").restart_asks = 1;
  update({"a", "b", "c"});
  EXPECT_EQ(hall().restarts, 3);
}

TEST_F(Keepers, ARestartThatTheLastKeeperCountedIsNotCountedAgain) {
  job_of(1, 3);
  update({"a", "b", "c"});
  enter({"a", "b", "c"});
  state("b").restart_asks = 1;
  state("b").counted_asks = 1;  // the last keeper told b, but not this one
  state("b").restarts = 1;
  state("c").restart_asks = 1;  // saw the same failure
  state("b").counted_round = 0;
  update({"a", "b", "c"});
  EXPECT_EQ(hall().restarts, 1);
  EXPECT_EQ(hall().counted.at("c"), 1U);
}

// What a node of a round of a, b and c knew when its keeper was lost.
JobState known_round(const std::vector<NodeRecord>& nodes) {
  JobState known;
  known.term = 4;
  known.restarts = 2;
  known.round = {.number = 3, .master = "x:1", .nodes = nodes};
  return known;
}

TEST_F(Keepers, ANewKeeperNeedsAQuorumForItsTerm) {
  job_of(1, 3);
  open(known_round({record("x"), record("a"), record("b")}));
  enter({"a"});
  update({"a"});
  EXPECT_FALSE(hall().official);
  EXPECT_EQ(hall().term, 4);
  EXPECT_THAT(hall().lost, IsEmpty());  // they may be on their way
  enter({"b"});
  update({"a", "b"});
  EXPECT_TRUE(hall().official);
  EXPECT_EQ(hall().term, 5);
  EXPECT_EQ(hall().restarts, 2);
  // x does not come.
  for (int i = 0; i < 11; ++i) update({"a", "b"}, 1s);
  EXPECT_THAT(hall().lost, ElementsAre("x"));
}

TEST_F(Keepers, TheKeeperThatEndedIsLostAtOnce) {
  job_of(1, 3);
  open(known_round({record("x"), record("a"), record("b")}));
  refusing_.insert("x:1");
  update({"a"});
  EXPECT_THAT(hall().lost, ElementsAre("x"));
  EXPECT_TRUE(hall().official);  // half of those that live, and the first of them
}

TEST_F(Keepers, WhoKnowsALaterRoundTeachesTheKeeper) {
  job_of(1, 3);
  open(known_round({record("x"), record("a"), record("b")}));
  auto& later = state("b");
  later.known_round = {.number = 4, .master = "x:1", .nodes = {record("x"), record("b"), record("a"), record("c")}};
  later.restarts = 3;
  update({"a", "b"});
  EXPECT_EQ(hall().round.number, 4);
  EXPECT_EQ(hall().restarts, 3);
  EXPECT_THAT(nodes(), ElementsAre("x", "b", "a", "c"));
}

TEST_F(Keepers, ANodeThatComesAndGoesNeverStopsAnElasticJob) {
  job_of(1, 3, true);
  update({"a", "b", "c"});
  enter({"a", "b", "c"});
  for (int i = 1; i <= 3; ++i) {
    close_connection("c");
    refusing_.insert("c:1");
    update({"a", "b"});
    update({"a", "b"});
    EXPECT_THAT(nodes(), ElementsAre("a", "b"));
    enter({"a", "b"});
    state("c").connection = static_cast<std::uint64_t>(i);
    state("c").wants_round = true;
    refusing_.clear();
    update({"a", "b", "c"});
    EXPECT_THAT(nodes(), ElementsAre("a", "b", "c"));
    enter({"a", "b", "c"});
  }
}

}  // namespace
}  // namespace lockstep::launch
