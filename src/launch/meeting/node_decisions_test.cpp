#include "launch/meeting/node_decisions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::launch {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

NodeRecord node(const std::string& id, int nproc = 1, std::optional<int> node_rank = std::nullopt) {
  return {.id = id, .host = "host-" + id, .pid = 7, .nproc = nproc, .address = id + ":1", .node_rank = node_rank};
}
std::vector<NodeRecord> nodes(const std::vector<std::string>& ids) {
  std::vector<NodeRecord> result;
  for (const auto& id : ids) result.push_back(node(id));
  return result;
}
std::vector<std::string> ids_of(const std::vector<NodeRecord>& records) {
  std::vector<std::string> ids;
  for (const auto& record : records) ids.push_back(record.id);
  return ids;
}

// Nodes that wait for a round, in order of arrival.
MeetingView gathering(int min, int max, const std::vector<std::string>& ids) {
  MeetingView view;
  view.job = {.run_id = "job", .min_nodes = min, .max_nodes = max};
  for (const auto& id : ids) view.present.push_back({.node = node(id), .wants_round = true});
  return view;
}
// The same after a round in which `last` took part.
MeetingView after_round(int min, int max, const std::vector<std::string>& last, const std::vector<std::string>& here) {
  MeetingView view = gathering(min, max, here);
  view.last.number = 0;
  view.last.id = "r0";
  view.last.nodes = nodes(last);
  return view;
}

TEST(NodeDecisions, TheFirstRoundBeginsWhenAllHaveArrived) {
  const auto early = decide_round(gathering(3, 3, {"a", "b"}));
  EXPECT_FALSE(early.begins);
  EXPECT_EQ(early.reason, "2 of 3 nodes have arrived: host-a (pid 7), host-b (pid 7)");
  const auto complete = decide_round(gathering(3, 3, {"a", "b", "c"}));
  EXPECT_TRUE(complete.begins);
  EXPECT_THAT(ids_of(complete.nodes), ElementsAre("a", "b", "c"));
}

TEST(NodeDecisions, ARoundBeginsAtTheMaximumOrAfterTheLastCallTimeout) {
  auto view = gathering(2, 4, {"a", "b", "c"});
  view.since_arrival = 29s;
  EXPECT_FALSE(decide_round(view).begins);
  EXPECT_THAT(decide_round(view).reason, HasSubstr("others may still arrive"));
  view.since_arrival = 30s;
  EXPECT_TRUE(decide_round(view).begins);
  view.since_arrival = 0s;
  view.present.push_back({.node = node("d"), .wants_round = true});
  EXPECT_TRUE(decide_round(view).begins);
}

TEST(NodeDecisions, TooFewNodesNeverBegin) {
  auto view = gathering(2, 4, {"a"});
  view.since_arrival = 1h;
  EXPECT_FALSE(decide_round(view).begins);
}

TEST(NodeDecisions, NodesBeyondTheMaximumWait) {
  EXPECT_THAT(ids_of(decide_round(gathering(1, 2, {"a", "b", "c"})).nodes), ElementsAre("a", "b"));
  // Nodes of the last round take precedence over a new node that arrived earlier.
  EXPECT_THAT(ids_of(decide_round(after_round(1, 2, {"a", "b"}, {"c", "b", "a"})).nodes), ElementsAre("a", "b"));
}

TEST(NodeDecisions, ARestartBeginsAtOnceWhenNoNodeWasLost) {
  const auto decision = decide_round(after_round(1, 4, {"a", "b"}, {"b", "a"}));
  EXPECT_TRUE(decision.begins);
  EXPECT_THAT(ids_of(decision.nodes), ElementsAre("a", "b"));
}

TEST(NodeDecisions, AfterALossTheLastCallTimeoutLetsTheNodeReturn) {
  auto view = after_round(1, 3, {"a", "b", "c"}, {"a", "c"});
  view.ended = {"b"};
  EXPECT_FALSE(decide_round(view).begins);
  view.since_arrival = 30s;
  EXPECT_THAT(ids_of(decide_round(view).nodes), ElementsAre("a", "c"));
  view.since_arrival = 0s;
  view.present.push_back({.node = node("b2"), .wants_round = true});
  EXPECT_THAT(ids_of(decide_round(view).nodes), ElementsAre("a", "c", "b2"));
}

TEST(NodeDecisions, ARestartWaitsForRanksThatAreStillBeingStopped) {
  auto view = after_round(2, 2, {"a", "b"}, {"a", "b"});
  view.present[1].wants_round = false;
  const auto decision = decide_round(view);
  EXPECT_FALSE(decision.begins);
  EXPECT_THAT(decision.reason, HasSubstr("the ranks of host-b (pid 7) have not stopped yet"));
}

TEST(NodeDecisions, SplitBrainOnlyOnePartContinues) {
  // Four nodes, split in half: neither part knows that the other has ended.
  const auto first = decide_round(after_round(1, 4, {"a", "b", "c", "d"}, {"a", "b"}));
  const auto second = decide_round(after_round(1, 4, {"a", "b", "c", "d"}, {"c", "d"}));
  EXPECT_TRUE(first.has_quorum);
  EXPECT_FALSE(second.has_quorum);
  EXPECT_FALSE(second.begins);
  EXPECT_THAT(second.reason, HasSubstr("half is not enough without it"));
  // Newcomers do not help a part that may not continue.
  auto third = after_round(1, 4, {"a", "b", "c", "d"}, {"c", "d", "e", "f"});
  third.since_arrival = 1h;
  EXPECT_FALSE(decide_round(third).begins);
}

TEST(NodeDecisions, SimultaneousDeathsLeaveTheSurvivorsAQuorum) {
  auto view = after_round(1, 4, {"a", "b", "c", "d"}, {"d"});
  EXPECT_FALSE(decide_round(view).has_quorum);  // silent: they may live
  view.ended = {"a", "b", "c"};
  EXPECT_TRUE(decide_round(view).has_quorum);
}

TEST(NodeDecisions, ARoundThatWasNotEstablishedDoesNotReplaceTheOneBefore) {
  // Round 1 was decided for a and b. b never accepted it, and may continue with c and d.
  auto view = after_round(1, 4, {"a", "b"}, {"a"});
  view.last.number = 1;
  view.established = {.number = 0, .id = "first", .nodes = nodes({"a", "b", "c", "d"})};
  view.is_void = true;
  view.since_arrival = 1h;
  EXPECT_FALSE(decide_round(view).has_quorum);
  view.ended = {"c", "d"};
  EXPECT_TRUE(decide_round(view).begins);
  EXPECT_EQ(decide_round(view).number, 2);
  // What an ended node had accepted counts, too.
  view.others = {{.generation = {.number = 7, .id = "later", .members = {{.id = "c"}, {.id = "e"}}}}};
  EXPECT_FALSE(decide_round(view).has_quorum);
  view.present.push_back({.node = node("e"), .wants_round = true});
  EXPECT_EQ(decide_round(view).number, 7);
  // e must be in the new round for that.
  view.job.max_nodes = 1;
  EXPECT_FALSE(decide_round(view).begins);
}

TEST(NodeDecisions, ANodeThatMayStillReturnIsAwaited) {
  auto view = after_round(1, 3, {"a", "b", "c"}, {"b", "c"});
  view.awaited = {"a"};
  view.since_arrival = 1h;
  EXPECT_FALSE(decide_round(view).begins);
  EXPECT_THAT(decide_round(view).reason, HasSubstr("host-a (pid 7) may still return"));
}

TEST(NodeDecisions, AnElasticJobAddsAndRemovesNodesWithoutStopping) {
  auto view = after_round(1, 3, {"a", "b"}, {"a", "b"});
  view.job.elastic = true;
  for (auto& one : view.present) one.wants_round = false;
  EXPECT_FALSE(decide_round(view).begins);
  view.present.push_back({.node = node("c"), .wants_round = true});
  EXPECT_THAT(ids_of(decide_round(view).nodes), ElementsAre("a", "b", "c"));
  view.present.erase(view.present.begin());
  view.ended = {"a"};
  EXPECT_THAT(ids_of(decide_round(view).nodes), ElementsAre("b", "c"));
  // The last running node has ended: the waiting node alone is not a quorum.
  view.present.erase(view.present.begin());
  view.ended = {"a", "b"};
  EXPECT_FALSE(decide_round(view).has_quorum);
}

TEST(NodeDecisions, ANodeThatAnElasticJobLeftOutIsAddedAgainWhenItReturns) {
  auto view = after_round(1, 3, {"a"}, {"a", "b"});
  view.job.elastic = true;
  for (auto& one : view.present) one.wants_round = false;  // the ranks of both are running
  EXPECT_THAT(ids_of(decide_round(view).nodes), ElementsAre("a", "b"));
}

TEST(NodeDecisions, GivenNodeRanksTakePrecedence) {
  EXPECT_THAT(ids_of(order_nodes({node("a"), node("b", 1, 0), node("c")})), ElementsAre("b", "a", "c"));
  EXPECT_THAT(ids_of(order_nodes({node("a", 1, 2), node("b", 1, 1), node("c", 1, 0)})), ElementsAre("c", "b", "a"));
  // A smaller world has no node rank 3.
  EXPECT_THAT(ids_of(order_nodes({node("a", 1, 3), node("b", 1, 0)})), ElementsAre("b", "a"));
}

TEST(NodeDecisions, NodesOfDifferentSizeShiftTheRanksAfterThem) {
  const std::vector<NodeRecord> three = {node("a", 3), node("b", 1), node("c", 2)};
  const auto round = round_of("c", 4, 2, "[fd77::1]:80", three);
  ASSERT_TRUE(round);
  EXPECT_EQ(round->node_rank, 2);
  EXPECT_EQ(round->first_rank, 4);
  EXPECT_EQ(round->world_size, 6);
  EXPECT_EQ(round->master_addr, "fd77::1");
  EXPECT_EQ(round->master_port, 80);
  EXPECT_EQ(round->restarts, 2);
  EXPECT_FALSE(round_of("x", 4, 2, "a:80", three));
}

TEST(NodeDecisions, RefusalsNameBothSides) {
  const JobConfig job{.run_id = "x", .min_nodes = 2, .max_nodes = 2};
  JobConfig other = job;
  EXPECT_FALSE(refuse_config(job, node("a"), other, node("b")));
  other.max_nodes = 3;
  EXPECT_THAT(refuse_config(job, node("a"), other, node("b")).value_or(""),
              AllOf(HasSubstr("node host-b (pid 7) was started with --nnodes 2:3"),
                    HasSubstr("node host-a (pid 7), the coordinator, with --nnodes 2;")));
  other = job;
  other.run_id = "y";
  EXPECT_THAT(refuse_config(job, node("a"), other, node("b")).value_or(""), HasSubstr("--rdzv-id 'y'"));
  other = job;
  other.elastic = true;
  EXPECT_THAT(refuse_config(job, node("a"), other, node("b")).value_or(""), HasSubstr("--elastic true"));
  other = job;
  other.max_restarts = 5;
  EXPECT_THAT(refuse_config(job, node("a"), other, node("b")).value_or(""), HasSubstr("--max-restarts 5"));
}

TEST(NodeDecisions, ANodeRankBelongsToOneNode) {
  const JobConfig job{.run_id = "x", .min_nodes = 2, .max_nodes = 2};
  const std::vector<NodeRecord> here = {node("a", 2, 0)};
  EXPECT_FALSE(refuse_node_rank(job, node("b", 4, 1), here));
  EXPECT_FALSE(refuse_node_rank(job, node("b", 4), here));
  EXPECT_THAT(refuse_node_rank(job, node("b", 4, 0), here).value_or(""),
              AllOf(HasSubstr("--node-rank 0 is claimed twice"), HasSubstr("host-a (pid 7) with 2 ranks"),
                    HasSubstr("host-b (pid 7) with 4 ranks")));
  EXPECT_THAT(refuse_node_rank(job, node("b", 4, 2), here).value_or(""), HasSubstr("expected a node rank from 0 to 1"));
}

Place at(Place::Kind kind, int term = 0, std::chrono::milliseconds silent_for = 0ms) {
  return {.kind = kind, .term = term, .is_self = false, .silent_for = silent_for};
}
const Place kSelf = {.kind = Place::Kind::silent, .is_self = true};

TEST(NodeDecisions, TheFirstLivingNodeBecomesTheCoordinator) {
  using Kind = Place::Kind;
  using Choice = PlaceChoice::Kind;
  // The coordinator has ended; this is the next node.
  EXPECT_EQ(choose_place(std::vector{at(Kind::unreachable), kSelf, at(Kind::standby)}, 1, 1s).kind, Choice::coordinate);
  // An earlier node is alive, but has not detected it yet.
  EXPECT_EQ(choose_place(std::vector{at(Kind::unreachable), at(Kind::standby), kSelf}, 1, 1s).kind, Choice::wait);
  const auto join = choose_place(std::vector{at(Kind::unreachable), at(Kind::candidate), kSelf}, 1, 1s);
  EXPECT_EQ(join.kind, Choice::join);
  EXPECT_EQ(join.place, 1U);
  // A silent one is awaited, but not forever.
  EXPECT_EQ(choose_place(std::vector{at(Kind::silent, 0, 900ms), kSelf}, 1, 1s).kind, Choice::wait);
  EXPECT_EQ(choose_place(std::vector{at(Kind::silent, 0, 1000ms), kSelf}, 1, 1s).kind, Choice::coordinate);
}

TEST(NodeDecisions, TheCoordinatorWithTheNewestTermWins) {
  using Kind = Place::Kind;
  const auto choice = choose_place(std::vector{at(Kind::meeting, 1), kSelf, at(Kind::meeting, 2)}, 1, 1s);
  EXPECT_EQ(choice.kind, PlaceChoice::Kind::join);
  EXPECT_EQ(choice.place, 2U);
  // One of an older term is no better than a candidate.
  EXPECT_EQ(choose_place(std::vector{kSelf, at(Kind::meeting, 1)}, 2, 1s).kind, PlaceChoice::Kind::coordinate);
}

// "a" got the vote of the witness for a round without "b", but ended before it could accept that round itself.
TEST(NodeDecisions, AVoteForARoundThatANodeNeverAcceptedDoesNotCount) {
  auto view = after_round(1, 2, {"a", "b"}, {"b"});
  view.since_arrival = 60s;
  view.last.witness = "w/register";
  view.established = view.last;
  view.ended = {"a"};
  const membership::Generation voted{.number = 2, .id = "r1", .members = {{.id = "a"}}, .witness = "w/register"};
  view.witness = membership::WitnessView{.id = "w", .votes = {{"w/register", voted}}};
  EXPECT_FALSE(decide_round(view).begins) << "the round may have begun";
  view.ended_with["a"] = generation_of(view.last);
  const auto decision = decide_round(view);
  EXPECT_TRUE(decision.begins) << decision.reason;
  EXPECT_EQ(decision.number, 2) << "not the number of the round that does not count";
}

// "a" ended before it had accepted the first round. There is none before it that would keep two parts from beginning.
TEST(NodeDecisions, TheFirstRoundIsNeverVoid) {
  auto view = after_round(1, 4, {"a", "b", "c", "d"}, {"d"});
  view.since_arrival = 1h;
  view.ended = {"a"};
  view.ended_with["a"] = {};
  EXPECT_FALSE(decide_round(view).has_quorum);
  view.present.push_back({.node = node("c"), .wants_round = true});
  const auto decision = decide_round(view);
  EXPECT_TRUE(decision.begins) << decision.reason;
  EXPECT_EQ(decision.number, 1);
}

TEST(NodeDecisions, OfTwoCoordinatorsThatWaitForEachOtherTheFirstWins) {
  using Kind = Place::Kind;
  Place self = at(Kind::meeting, 2);
  self.is_self = true;
  EXPECT_EQ(choose_place(std::vector{self, at(Kind::meeting, 2)}, 2, 1s).kind, PlaceChoice::Kind::coordinate);
  const auto second = choose_place(std::vector{at(Kind::meeting, 2), self}, 2, 1s);
  EXPECT_EQ(second.kind, PlaceChoice::Kind::join);
  EXPECT_EQ(second.place, 0U);
  EXPECT_EQ(choose_place(std::vector{self, at(Kind::meeting, 3)}, 2, 1s).kind, PlaceChoice::Kind::join);
}

// Each is the first living node of the list that it knows, and needs the other one for a quorum.
TEST(NodeDecisions, OfTwoCandidatesTheOneThatKnowsTheNewerEstablishedRoundWins) {
  using Kind = Place::Kind;
  const auto candidate = [](int established, bool is_self) {
    return Place{.kind = Kind::candidate, .established = established, .is_self = is_self};
  };
  const auto older = choose_place(std::vector{candidate(0, true), at(Kind::unreachable), candidate(1, false)}, 1, 1s);
  EXPECT_EQ(older.kind, PlaceChoice::Kind::join);
  EXPECT_EQ(older.place, 2U);
  const auto newer = choose_place(std::vector{at(Kind::unreachable), candidate(1, true)}, 1, 1s);
  EXPECT_EQ(newer.kind, PlaceChoice::Kind::coordinate);
  // An earlier node of its list learns from it, and is the first of the same list then.
  EXPECT_EQ(choose_place(std::vector{candidate(0, false), candidate(1, true)}, 1, 1s).kind, PlaceChoice::Kind::join);
  const auto equal = choose_place(std::vector{candidate(1, true), candidate(1, false)}, 1, 1s);
  EXPECT_EQ(equal.kind, PlaceChoice::Kind::coordinate);
  EXPECT_EQ(choose_place(std::vector{candidate(1, false), candidate(1, true)}, 1, 1s).place, 0U);
}

TEST(NodeDecisions, AnAccidentalWorldOfOneCausesAWarning) {
  EXPECT_THAT(warn_of_single_node(1, true, "gpu1:29400", 0).value_or(""), HasSubstr("gpu1:29400 is another host"));
  EXPECT_THAT(warn_of_single_node(1, false, "gpu1:29400", 4).value_or(""), HasSubstr("Did you mean --nnodes 4?"));
  EXPECT_FALSE(warn_of_single_node(1, false, "gpu1:29400", 1));
  EXPECT_FALSE(warn_of_single_node(4, true, "gpu1:29400", 4));
}

}  // namespace
}  // namespace lockstep::launch
