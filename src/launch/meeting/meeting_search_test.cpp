// Searches among stores of this process, over loopback.
#include "launch/meeting/meeting_search.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "store/tcp/tcp_store_server.h"
#include "support/reserved_port.h"

namespace lockstep::launch {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;

using Choice = PlaceChoice::Kind;

class MeetingSearches : public ::testing::Test {
 protected:
  // A launcher with a store, which is not the coordinator.
  NodeRecord start(const std::string& id) {
    auto server = TcpStoreServer::start({.host = "127.0.0.1", .port = 0});
    EXPECT_TRUE(server.ok()) << server.status().message();
    servers_.push_back(*std::move(server));
    NodeRecord node{.id = id, .host = "host", .pid = 1, .address = servers_.back()->address()};
    set(node, kOwnerKey, id);
    return node;
  }
  // A launcher that has ended.
  NodeRecord ended(const std::string& id) {
    return {.id = id, .host = "host", .pid = 1, .address = "127.0.0.1:" + std::to_string(port_.port())};
  }
  static void set(const NodeRecord& node, const std::string& key, const std::string& value) {
    const auto place = parse_host_port(node.address);
    const auto store = TcpStore::connect(place->host, place->port, {}, Deadline::after(10s));
    ASSERT_TRUE(store.ok()) << store.status().message();
    ASSERT_TRUE((*store)->set(key, value, Deadline::after(10s)).ok());
  }
  // The node is a coordinator that knows this.
  static void coordinate(const NodeRecord& node, JobState state) {
    state.coordinator = node;
    set(node, kJobStateKey, format(state));
  }
  static JobState known(int number, const std::vector<NodeRecord>& nodes) {
    JobState state;
    state.term = 1;
    state.round = {.number = number, .id = "r" + std::to_string(number), .master = "a:1", .nodes = nodes};
    state.established = state.round;
    return state;
  }

  const testing::ReservedPort port_;
  std::vector<std::unique_ptr<TcpStoreServer>> servers_;
  MeetingSearch search_{Secret(), 1s};
};

TEST_F(MeetingSearches, NodesOfAnEstablishedRoundComeFirstAndThoseOfRoundsThatNeedAQuorumAreNotForgotten) {
  const NodeRecord a = ended("a"), b = ended("b"), c = ended("c");
  JobState state = known(1, {b, c});
  state.round = {.number = 2, .id = "r2", .nodes = {a, c}};
  state.others = {
      {.generation = {.number = 3, .id = "rival", .members = {{.id = "d", .store_address = "d:1"}, {.id = "b"}}}}};
  std::vector<std::string> ids;
  const auto nodes = nodes_to_search(state);
  for (const auto& node : nodes) ids.push_back(node.id);
  EXPECT_THAT(ids, ElementsAre("b", "c", "a", "d"));
  EXPECT_EQ(nodes.back().store_address, "d:1");
}

// "a" accepted round 1 with "c"; "b" and "c" established another round 1, and "b" ended.
TEST_F(MeetingSearches, ACandidateJoinsOneThatKnowsANewerEstablishedRound) {
  const NodeRecord a = start("a"), b = ended("b"), c = start("c");
  JobState of_c = known(1, {b, c});
  of_c.others = {{.generation = generation_of({.number = 1, .id = "rival", .nodes = {a, c}})}};
  coordinate(c, of_c);
  JobState of_a = known(0, {a, b, c});
  of_a.round = {.number = 1, .id = "rival", .master = "a:1", .nodes = {a, c}};
  coordinate(a, of_a);
  const auto outcome = search_.search_nodes(of_a, "a", false);
  EXPECT_EQ(outcome.kind, Choice::join);
  EXPECT_EQ(outcome.finding.job_state.coordinator.id, "c");
  EXPECT_EQ(search_.search_nodes(of_c, "c", false).kind, Choice::coordinate);
}

// Otherwise all nodes would wait for it to become the coordinator of a job that it does not know.
TEST_F(MeetingSearches, ALauncherAtTheAddressOfAnEndedOneIsNotTakenForIt) {
  NodeRecord a = start("new"), b = start("b");
  a.id = "a";
  EXPECT_EQ(search_.search_nodes(known(0, {a, b}), "b", false).kind, Choice::coordinate);
  JobState candidate;
  coordinate(a, candidate);
  EXPECT_EQ(search_.search_nodes(known(0, {a, b}), "b", false).kind, Choice::coordinate);
  // A coordinator with a quorum may be anywhere.
  candidate.official = true;
  candidate.term = 1;
  coordinate(a, candidate);
  EXPECT_EQ(search_.search_nodes(known(0, {a, b}), "b", false).kind, Choice::join);
}

// This launcher was started at the address of "a", and has learned of the job.
TEST_F(MeetingSearches, ALauncherDoesNotTakeItselfForTheNodeThatHadItsAddress) {
  const NodeRecord self = start("self"), b = start("b");
  NodeRecord a = self;
  a.id = "a";
  JobState state = known(0, {a, b});
  state.official = true;
  coordinate(self, state);
  EXPECT_EQ(search_.search_nodes(known(0, {a, b}), "b", false).kind, Choice::join);
  EXPECT_EQ(search_.search_nodes(known(0, {a, b}), "self", false).kind, Choice::wait) << "for b";
}

}  // namespace
}  // namespace lockstep::launch
