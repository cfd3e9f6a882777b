#include "launch/meeting/node_view.h"

#include <gtest/gtest.h>

namespace lockstep::launch {
namespace {

using Kind = MeetingEvent::Kind;

NodeRecord record(const std::string& id) {
  return {.id = id, .host = "host-" + id, .pid = 1, .nproc = 1, .address = id + ":1"};
}

JobState job_state_of(int number, const std::vector<std::string>& ids, bool elastic = false) {
  JobState state;
  state.job.elastic = elastic;
  state.term = 1;
  state.official = true;
  state.round = {
      .number = number, .id = "r" + std::to_string(number), .master = "a:1", .nodes = {}, .base = number - 1};
  for (const auto& id : ids) state.round.nodes.push_back(record(id));
  state.round.base_id = number == 0 ? "" : "r" + std::to_string(number - 1);
  state.established = state.round;
  return state;
}

// The view of node "b" in its first round.
NodeView view_in(const JobState& state) {
  NodeView view(record("b"), state.job);
  view.ask_for_round();
  view.apply(state);
  EXPECT_TRUE(view.enter_round());
  return view;
}

Kind next(NodeView& view) { return view.take_event().value_or(MeetingEvent()).kind; }

TEST(NodeView, ARoundIsEnteredOnce) {
  NodeView view(record("b"), {});
  EXPECT_FALSE(view.enter_round());
  view.ask_for_round();
  view.apply(job_state_of(0, {"a"}));
  EXPECT_FALSE(view.enter_round());  // without this node
  view.apply(job_state_of(1, {"a", "b"}));
  EXPECT_EQ(view.enter_round()->node_rank, 1);
  view.ask_for_round();
  EXPECT_FALSE(view.enter_round());
}

TEST(NodeView, EventsAreReportedOnceAndNotInTheNextRound) {
  auto state = job_state_of(0, {"a", "b", "c"});
  auto view = view_in(state);
  state.failures.push_back({.round = 0, .node = "a", .failure = {}});
  state.failures.push_back({.round = 0, .node = "b", .failure = {}});  // its own
  state.failures.push_back({.round = -1, .node = "c", .failure = {}});
  state.lost = {"c"};
  state.waiting = {record("d")};
  state.finished = {"a", "b"};
  view.apply(state);
  view.apply(state);
  EXPECT_EQ(next(view), Kind::rank_failed);
  EXPECT_EQ(next(view), Kind::node_lost);
  EXPECT_EQ(next(view), Kind::node_waiting);
  EXPECT_EQ(next(view), Kind::node_finished);
  EXPECT_EQ(next(view), Kind::none);
  state.lost = {"a", "c"};
  view.apply(state);
  view.ask_for_round();
  view.apply(job_state_of(1, {"a", "b"}));
  ASSERT_TRUE(view.enter_round());
  EXPECT_EQ(next(view), Kind::none);
}

TEST(NodeView, AnOlderJobStateIsIgnored) {
  auto view = view_in(job_state_of(3, {"a", "b"}));
  auto old_round = job_state_of(2, {"a", "b"});
  old_round.over = "old";
  view.apply(old_round);
  EXPECT_EQ(view.known().round.number, 3);
  auto old_term = job_state_of(3, {"a", "b"});
  old_term.term = 0;
  old_term.over = "old";
  view.apply(old_term);
  EXPECT_EQ(view.known().over, "");
}

TEST(NodeView, ARoundIsEnteredOnlyWhenItIsEstablished) {
  auto state = job_state_of(3, {"a", "b"});
  state.established = {.number = 2, .id = "r2"};
  NodeView view(record("b"), {});
  view.ask_for_round();
  view.apply(state);
  EXPECT_FALSE(view.enter_round());
  EXPECT_EQ(view.announcement(1, "r3", "r2").accepted, "r3");
  state.established = state.round;
  view.apply(state);
  EXPECT_TRUE(view.enter_round());
}

TEST(NodeView, OneRoundOfEachNumberIsAcceptedAndTheCoordinatorLearnsWhich) {
  auto view = view_in(job_state_of(3, {"a", "b"}));
  auto rival = job_state_of(3, {"b", "c"});
  rival.round.id = "rival";
  const auto version = view.version();
  view.apply(rival);
  EXPECT_EQ(view.known().round.id, "r3");
  EXPECT_NE(view.version(), version);
  EXPECT_EQ(view.announcement(1, "rival", "r2").known_round.id, "r3");
  EXPECT_EQ(view.announcement(1, "r3", "r3").known_round.number, -1);
}

TEST(NodeView, ARoundThatDoesNotKnowTheNewestEstablishedOneIsRefused) {
  auto view = view_in(job_state_of(3, {"a", "b"}));
  auto other = job_state_of(5, {"b", "c"});
  other.round.base = 2;
  other.round.base_id = "r2";
  other.established = {.number = 2, .id = "r2"};
  view.apply(other);
  EXPECT_EQ(view.known().round.id, "r3");
  EXPECT_EQ(view.announcement(1, "r5", "r2").established.id, "r3");
  // Another coordinator's state may be behind in what is established.
  auto state = job_state_of(4, {"a", "b"});
  state.established = {};
  view.apply(state);
  EXPECT_EQ(view.known().round.id, "r4");
  EXPECT_EQ(view.known().established.id, "r3");
}

// Otherwise this node would search for the coordinator among the nodes of an older round, and never find the others.
TEST(NodeView, ANodeThatAcceptedARivalRoundRemembersWhichOneIsEstablished) {
  auto view = view_in(job_state_of(2, {"a", "b", "c"}));
  auto rival = job_state_of(3, {"b", "c"});
  rival.round.id = "rival";
  rival.established = job_state_of(2, {"a", "b", "c"}).round;
  view.apply(rival);
  ASSERT_EQ(view.known().round.id, "rival");
  const auto version = view.version();
  view.apply(job_state_of(3, {"a", "c"}));
  EXPECT_EQ(view.known().round.id, "rival");
  EXPECT_EQ(view.known().established.id, "r3");
  EXPECT_NE(view.version(), version);
  EXPECT_EQ(view.announcement(1, "rival", "r2").established.id, "r3");
  view.ask_for_round();
  EXPECT_FALSE(view.enter_round());
  EXPECT_FALSE(view.is_forming());
  // From now on it refuses a round whose coordinator did not know that.
  auto outdated = job_state_of(4, {"a", "b"});
  outdated.round.base = 2;
  outdated.round.base_id = "r2";
  EXPECT_FALSE(view.accepts(outdated.round));
  EXPECT_TRUE(view.accepts(job_state_of(4, {"a", "b"}).round));
}

// Otherwise its roster would have a round that it does not act on, and refuse another one with the same number.
TEST(NodeView, ARoundOfAnOlderTermIsNotForTheRoster) {
  auto view = view_in(job_state_of(2, {"a", "b", "c"}));
  auto state = job_state_of(3, {"a", "b"});
  EXPECT_TRUE(view.needs_roster_entry(state));
  state.term = view.known().term - 1;
  EXPECT_FALSE(view.needs_roster_entry(state));
  EXPECT_FALSE(view.needs_roster_entry(job_state_of(2, {"a", "b", "c"}))) << "it is the known one";
  EXPECT_FALSE(view.needs_roster_entry(job_state_of(3, {"a", "c"}))) << "this node is not in it";
  EXPECT_TRUE(view.needs_roster_entry(job_state_of(4, {"b"})));
}

TEST(NodeView, ANodeThatTheOthersGaveUpDetectsIt) {
  auto state = job_state_of(0, {"a", "b", "c"});
  auto view = view_in(state);
  state = job_state_of(1, {"a", "c"});
  view.apply(state);
  const auto event = view.take_event();
  ASSERT_TRUE(event);
  EXPECT_EQ(event->kind, Kind::node_lost);
  EXPECT_EQ(event->node.id, "b");
}

TEST(NodeView, AnElasticNodeContinuesInTheNextRound) {
  auto view = view_in(job_state_of(0, {"a", "b"}, true));
  view.apply(job_state_of(1, {"b", "c"}, true));
  EXPECT_EQ(view.mine().round, 1);
  const auto lost = view.take_event();
  ASSERT_TRUE(lost);
  EXPECT_EQ(lost->node.id, "a");
  EXPECT_EQ(next(view), Kind::node_waiting);
  EXPECT_EQ(next(view), Kind::none);
}

TEST(NodeView, ARestartIsCountedOnceTheCoordinatorConfirmsIt) {
  auto state = job_state_of(0, {"a", "b"});
  auto view = view_in(state);
  const auto ask = view.ask_restart();
  view.apply(state);
  EXPECT_FALSE(view.restarts_counted(ask));
  state.counted["b"] = ask;
  state.restarts = 7;
  view.apply(state);
  EXPECT_EQ(view.restarts_counted(ask), 7);
}

TEST(NodeView, OnlyNewerRostersCount) {
  NodeView view(record("b"), {});
  EXPECT_TRUE(view.offer_roster("2\nx"));
  EXPECT_FALSE(view.offer_roster("2\ny"));
  EXPECT_FALSE(view.offer_roster("1\ny"));
  EXPECT_FALSE(view.offer_roster("text"));
  EXPECT_TRUE(view.offer_roster("10\nz"));
  EXPECT_EQ(view.roster(), "10\nz");
}

}  // namespace
}  // namespace lockstep::launch
