#include "launch/meeting/node_view.h"

#include <gtest/gtest.h>

namespace lockstep::launch {
namespace {

using Kind = MeetingEvent::Kind;

NodeRecord record(const std::string& id) {
  return {.id = id, .host = "host-" + id, .pid = 1, .nproc = 1, .address = id + ":1"};
}

JobState hall_of(int number, const std::vector<std::string>& ids, bool elastic = false) {
  JobState hall;
  hall.job.elastic = elastic;
  hall.term = 1;
  hall.official = true;
  hall.round = {.number = number, .master = "a:1", .nodes = {}};
  for (const auto& id : ids) hall.round.nodes.push_back(record(id));
  return hall;
}

// A board of node "b" in the first round.
NodeView board_in(const JobState& hall) {
  NodeView board(record("b"), hall.job);
  board.ask_for_round();
  board.apply(hall);
  EXPECT_TRUE(board.enter_round());
  return board;
}

Kind next(NodeView& board) { return board.take_event().value_or(MeetingEvent()).kind; }

TEST(NodeView, ARoundIsEnteredOnce) {
  NodeView board(record("b"), {});
  EXPECT_FALSE(board.enter_round());
  board.ask_for_round();
  board.apply(hall_of(0, {"a"}));
  EXPECT_FALSE(board.enter_round());  // without this node
  board.apply(hall_of(1, {"a", "b"}));
  EXPECT_EQ(board.enter_round()->node_rank, 1);
  board.ask_for_round();
  EXPECT_FALSE(board.enter_round());
}

TEST(NodeView, EventsAreToldOnceAndNotOfTheNextRound) {
  auto hall = hall_of(0, {"a", "b", "c"});
  auto board = board_in(hall);
  hall.failures.push_back({.round = 0, .node = "a", .failure = {}});
  hall.failures.push_back({.round = 0, .node = "b", .failure = {}});  // its own
  hall.failures.push_back({.round = -1, .node = "c", .failure = {}});
  hall.lost = {"c"};
  hall.waiting = {record("d")};
  hall.finished = {"a", "b"};
  board.apply(hall);
  board.apply(hall);
  EXPECT_EQ(next(board), Kind::rank_failed);
  EXPECT_EQ(next(board), Kind::node_lost);
  EXPECT_EQ(next(board), Kind::node_waiting);
  EXPECT_EQ(next(board), Kind::node_finished);
  EXPECT_EQ(next(board), Kind::none);
  hall.lost = {"a", "c"};
  board.apply(hall);
  board.ask_for_round();
  board.apply(hall_of(1, {"a", "b"}));
  ASSERT_TRUE(board.enter_round());
  EXPECT_EQ(next(board), Kind::none);
}

TEST(NodeView, WhatIsOlderIsPassedOver) {
  auto board = board_in(hall_of(3, {"a", "b"}));
  auto old_round = hall_of(2, {"a", "b"});
  old_round.over = "old";
  board.apply(old_round);
  EXPECT_EQ(board.known().round.number, 3);
  auto old_term = hall_of(3, {"a", "b"});
  old_term.term = 0;
  old_term.over = "old";
  board.apply(old_term);
  EXPECT_EQ(board.known().over, "");
}

TEST(NodeView, ANodeThatTheOthersGaveUpLearnsOfIt) {
  auto hall = hall_of(0, {"a", "b", "c"});
  auto board = board_in(hall);
  hall = hall_of(1, {"a", "c"});
  board.apply(hall);
  const auto event = board.take_event();
  ASSERT_TRUE(event);
  EXPECT_EQ(event->kind, Kind::node_lost);
  EXPECT_EQ(event->node.id, "b");
}

TEST(NodeView, AnElasticNodeGoesOnInTheNextRound) {
  auto board = board_in(hall_of(0, {"a", "b"}, true));
  board.apply(hall_of(1, {"b", "c"}, true));
  EXPECT_EQ(board.mine().round, 1);
  const auto lost = board.take_event();
  ASSERT_TRUE(lost);
  EXPECT_EQ(lost->node.id, "a");
  EXPECT_EQ(next(board), Kind::node_waiting);
  EXPECT_EQ(next(board), Kind::none);
}

TEST(NodeView, ARestartIsCountedWhenTheKeeperSaysSo) {
  auto hall = hall_of(0, {"a", "b"});
  auto board = board_in(hall);
  const auto ask = board.ask_restart();
  board.apply(hall);
  EXPECT_FALSE(board.restarts_counted(ask));
  hall.counted["b"] = ask;
  hall.restarts = 7;
  board.apply(hall);
  EXPECT_EQ(board.restarts_counted(ask), 7);
}

TEST(NodeView, OnlyNewerRostersCount) {
  NodeView board(record("b"), {});
  EXPECT_TRUE(board.offer_roster("2\nx"));
  EXPECT_FALSE(board.offer_roster("2\ny"));
  EXPECT_FALSE(board.offer_roster("1\ny"));
  EXPECT_FALSE(board.offer_roster("text"));
  EXPECT_TRUE(board.offer_roster("10\nz"));
  EXPECT_EQ(board.roster(), "10\nz");
}

}  // namespace
}  // namespace lockstep::launch
