// The meetings of several nodes in one process, over loopback.
#include "launch/meeting/store_meeting.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <thread>

#include "base/random.h"
#include "support/reserved_port.h"

namespace lockstep::launch {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;
using Kind = MeetingEvent::Kind;

Deadline in(std::chrono::milliseconds time) { return Deadline::after(time); }

struct Node {
  std::unique_ptr<StoreMeeting> meeting;
  std::future<Result<Round>> pending = {};

  void ask(std::chrono::milliseconds timeout = 20s) {
    pending = std::async(std::launch::async,
                         [meeting = meeting.get(), timeout] { return meeting->next_round(in(timeout), nullptr); });
  }
  // The round that was asked for.
  Round round() {
    auto result = pending.get();
    EXPECT_TRUE(result.ok()) << result.status().to_string();
    return result.ok() ? *result : Round();
  }
  // Waits for the next event of that kind; ignores other kinds.
  bool wait_for(Kind kind, std::chrono::milliseconds timeout = 20s, MeetingEvent* event = nullptr) {
    const auto deadline = in(timeout);
    while (!deadline.expired()) {
      const auto found = meeting->poll();
      if (found.kind == kind) {
        if (event != nullptr) *event = found;
        return true;
      }
      if (found.kind == Kind::none) std::this_thread::sleep_for(5ms);
    }
    return false;
  }
};

class StoreMeetings : public ::testing::Test {
 protected:
  StoreMeetings() {
    options_.endpoints = {{"127.0.0.1", 0}};
    options_.job = {.run_id = "job", .min_nodes = 2, .max_nodes = 2, .elastic = false, .max_restarts = 3};
    options_.tick = 10ms;
    options_.last_call_timeout = 300ms;
    options_.silent_timeout = 3s;
    options_.linger = 300ms;
  }

  void job_of(int min, int max) {
    options_.job.min_nodes = min;
    options_.job.max_nodes = max;
  }

  // The first one becomes the coordinator; the others join it.
  Node open(int nproc = 1, std::optional<int> node_rank = std::nullopt) {
    options_.self = {
        .id = random_hex(8), .host = "host", .pid = 1, .nproc = nproc, .address = {}, .node_rank = node_rank};
    auto meeting = StoreMeeting::open(options_);
    EXPECT_TRUE(meeting.ok()) << meeting.status().message();
    Node node{.meeting = *std::move(meeting)};
    if (options_.endpoints.front().port == 0) {
      options_.endpoints.front().port = parse_host_port(node.meeting->address())->port;
    }
    return node;
  }

  // `count` nodes in their first round.
  std::vector<Node> meet(int count) {
    std::vector<Node> nodes;
    for (int i = 0; i < count; ++i) {
      nodes.push_back(open());
      nodes.back().ask();
    }
    for (auto& node : nodes) node.round();
    return nodes;
  }

  StoreMeetingOptions options_;
};

TEST_F(StoreMeetings, NodesOfUnequalSizeGetTheirRanks) {
  job_of(3, 3);
  std::vector<Node> nodes;
  nodes.push_back(open(2, 1));
  nodes.push_back(open(3, 0));
  nodes.push_back(open(1));
  for (auto& node : nodes) node.ask();
  const Round a = nodes[0].round();
  const Round b = nodes[1].round();
  const Round c = nodes[2].round();
  EXPECT_EQ(a.node_rank, 1);
  EXPECT_EQ(b.node_rank, 0);
  EXPECT_EQ(c.node_rank, 2);
  EXPECT_EQ(a.first_rank, 3);
  EXPECT_EQ(b.first_rank, 0);
  EXPECT_EQ(c.first_rank, 5);
  for (const auto* round : {&a, &b, &c}) {
    EXPECT_EQ(round->world_size, 6);
    EXPECT_EQ(round->number, 0);
    EXPECT_EQ(round->nodes.size(), 3U);
    EXPECT_EQ(round->master_addr, "127.0.0.1");
    EXPECT_EQ(round->master_port, options_.endpoints.front().port);
  }
}

TEST_F(StoreMeetings, ATimeoutListsTheNodesThatArrived) {
  job_of(3, 3);
  std::vector<Node> nodes;
  for (int i = 0; i < 2; ++i) nodes.push_back(open());
  for (auto& node : nodes) node.ask(5s);
  for (auto& node : nodes) {
    const auto result = node.pending.get();
    EXPECT_EQ(result.status().code(), StatusCode::timed_out);
    EXPECT_THAT(result.status().message(), AllOf(HasSubstr("did not meet within"),
                                                 HasSubstr("2 of 3 nodes have arrived: host (pid 1), host (pid 1)")));
  }
}

TEST_F(StoreMeetings, ANodeWithOtherOptionsIsRefused) {
  Node first = open();
  first.ask();
  options_.job.max_nodes = 3;
  Node other = open();
  other.ask();
  const auto refused = other.pending.get();
  EXPECT_EQ(refused.status().code(), StatusCode::mismatch);
  EXPECT_THAT(refused.status().message(), AllOf(HasSubstr("--nnodes 2:3"), HasSubstr("with --nnodes 2;")));
  options_.job.max_nodes = 2;
  options_.job.run_id = "another";
  Node foreign = open();
  foreign.ask();
  EXPECT_THAT(foreign.pending.get().status().message(), HasSubstr("--rdzv-id 'another'"));
  options_.job.run_id = "job";
  Node second = open();
  second.ask();
  EXPECT_EQ(first.round().world_size, 2);
  EXPECT_EQ(second.round().world_size, 2);
}

TEST_F(StoreMeetings, ANodeRankThatIsClaimedTwiceIsRefused) {
  std::vector<Node> claimants;
  claimants.push_back(open(2, 0));
  claimants.push_back(open(4, 0));
  for (auto& node : claimants) node.ask();
  // The later one is refused; which of the two that is, is not determined.
  while (claimants[0].pending.wait_for(1ms) != std::future_status::ready &&
         claimants[1].pending.wait_for(1ms) != std::future_status::ready) {
  }
  const bool second = claimants[1].pending.wait_for(0ms) == std::future_status::ready;
  const auto refused = claimants[second ? 1 : 0].pending.get();
  EXPECT_EQ(refused.status().code(), StatusCode::mismatch);
  EXPECT_THAT(refused.status().message(),
              AllOf(HasSubstr("--node-rank 0 is claimed twice"), HasSubstr("with 2 ranks"), HasSubstr("with 4 ranks")));
  Node third = open(1, 1);
  third.ask();
  EXPECT_EQ(claimants[second ? 0 : 1].round().world_size, second ? 3 : 5);
  EXPECT_EQ(third.round().first_rank, second ? 2 : 4);
}

TEST_F(StoreMeetings, AnotherSecretIsReportedAtOnce) {
  options_.secret = Secret("one");
  Node first = open();
  first.ask();
  options_.secret = Secret("another");
  Node second = open();
  second.ask();
  EXPECT_EQ(second.pending.get().status().code(), StatusCode::unauthenticated);
  first.meeting->end_job("the test is over");
  EXPECT_EQ(first.pending.get().status().code(), StatusCode::aborted);
}

TEST_F(StoreMeetings, BetweenMinAndMaxTheLastCallTimeoutDecides) {
  job_of(2, 4);
  auto nodes = meet(3);
  EXPECT_EQ(nodes.size(), 3U);
}

TEST_F(StoreMeetings, AWaitCanBeInterrupted) {
  Node node = open();
  const auto result = node.meeting->next_round(in(20s), [] { return true; });
  EXPECT_EQ(result.status().code(), StatusCode::aborted);
}

TEST_F(StoreMeetings, AFailureIsReportedToAllAndARestartIsCountedOnce) {
  job_of(3, 3);
  auto nodes = meet(3);
  RankFailure failure;
  failure.rank = 1;
  failure.exit_code = 7;
  ASSERT_TRUE(nodes[1].meeting->report_failure(failure).ok());
  MeetingEvent event;
  ASSERT_TRUE(nodes[0].wait_for(Kind::rank_failed, 20s, &event));
  EXPECT_EQ(event.failure.exit_code, 7);
  ASSERT_TRUE(nodes[2].wait_for(Kind::rank_failed));
  for (auto& node : nodes) {
    const auto restarts = node.meeting->count_restart();
    ASSERT_TRUE(restarts.ok()) << restarts.status().message();
    EXPECT_EQ(*restarts, 1);
    node.ask();
  }
  for (auto& node : nodes) {
    const Round round = node.round();
    EXPECT_EQ(round.number, 1);
    EXPECT_EQ(round.restarts, 1);
  }
  EXPECT_EQ(nodes[1].meeting->poll().kind, Kind::none);
}

TEST_F(StoreMeetings, TheEndOfTheJobReachesWaitingNodes) {
  auto nodes = meet(2);
  nodes[0].ask();
  nodes[1].meeting->end_job("too many restarts");
  const auto result = nodes[0].pending.get();
  EXPECT_EQ(result.status().code(), StatusCode::aborted);
  EXPECT_EQ(result.status().message(), "too many restarts");
}

TEST_F(StoreMeetings, NodesThatFinishAreNotLost) {
  auto nodes = meet(2);
  ASSERT_TRUE(nodes[0].meeting->report_finished().ok());
  ASSERT_TRUE(nodes[1].wait_for(Kind::node_finished));
  ASSERT_TRUE(nodes[1].meeting->report_finished().ok());
  nodes.erase(nodes.begin() + 1);
  EXPECT_TRUE(nodes[0].wait_for(Kind::node_finished));
  EXPECT_EQ(nodes[0].meeting->poll().kind, Kind::none);
}

TEST_F(StoreMeetings, ANodeThatLeavesIsLostAndTheOthersContinue) {
  job_of(2, 3);
  auto nodes = meet(3);
  nodes.pop_back();
  for (auto& node : nodes) ASSERT_TRUE(node.wait_for(Kind::node_lost));
  for (auto& node : nodes) node.ask();
  EXPECT_EQ(nodes[0].round().world_size, 2);
  EXPECT_EQ(nodes[1].round().world_size, 2);
}

TEST_F(StoreMeetings, ALateNodeJoinsAtTheNextRound) {
  job_of(2, 3);
  auto nodes = meet(2);
  nodes.push_back(open());
  nodes.back().ask();
  ASSERT_TRUE(nodes[0].wait_for(Kind::node_waiting));
  ASSERT_TRUE(nodes[1].wait_for(Kind::node_waiting));
  nodes[0].ask();
  nodes[1].ask();
  for (int i = 0; i < 3; ++i) {
    const Round round = nodes[static_cast<std::size_t>(i)].round();
    EXPECT_EQ(round.world_size, 3);
    EXPECT_EQ(round.node_rank, i);
  }
}

TEST_F(StoreMeetings, TheLossOfTheCoordinatorLosesNoState) {
  job_of(2, 3);
  options_.linger = 0ms;  // the coordinator leaves without waiting
  auto nodes = meet(3);
  ASSERT_TRUE(nodes[1].meeting->count_restart().ok());
  ASSERT_TRUE(nodes[2].meeting->publish_roster("5\nabc").ok());
  nodes.erase(nodes.begin());
  for (auto& node : nodes) {
    MeetingEvent event;
    ASSERT_TRUE(node.wait_for(Kind::node_lost, 20s, &event));
    node.ask();
  }
  for (auto& node : nodes) {
    const Round round = node.round();
    EXPECT_EQ(round.number, 1);
    EXPECT_EQ(round.restarts, 1);
    EXPECT_EQ(round.world_size, 2);
    EXPECT_NE(round.master_port, options_.endpoints.front().port);
  }
  const auto deadline = in(10s);
  while (nodes[0].meeting->newest_roster() != "5\nabc" && !deadline.expired()) std::this_thread::sleep_for(5ms);
  EXPECT_EQ(nodes[0].meeting->newest_roster(), "5\nabc");
}

TEST_F(StoreMeetings, ANewLauncherAtTheEndpointIsRedirectedToTheRunningJob) {
  job_of(2, 3);
  options_.linger = 0ms;
  options_.last_call_timeout = 20s;
  std::vector<Node> nodes;
  for (int i = 0; i < 3; ++i) {
    nodes.push_back(open());
    nodes.back().ask();
  }
  for (auto& node : nodes) node.round();
  nodes.erase(nodes.begin());
  for (auto& node : nodes) {
    ASSERT_TRUE(node.wait_for(Kind::node_lost));
    node.ask();
  }
  // It finds the endpoint free and serves it, but the other nodes are elsewhere.
  nodes.push_back(open());
  nodes.back().ask();
  for (auto& node : nodes) {
    const Round round = node.round();
    EXPECT_EQ(round.number, 1);
    EXPECT_EQ(round.world_size, 3);
  }
}

TEST_F(StoreMeetings, ANodeJoinsARunningElasticJob) {
  job_of(1, 3);
  options_.job.elastic = true;
  auto nodes = meet(2);
  ASSERT_TRUE(nodes[0].meeting->publish_roster("1\nx").ok());
  nodes.push_back(open());
  nodes.back().ask();
  const Round round = nodes.back().round();
  EXPECT_GT(round.number, 0);
  EXPECT_EQ(round.world_size, 3);
  EXPECT_EQ(round.node_rank, 2);
  EXPECT_TRUE(nodes[0].wait_for(Kind::node_waiting));
  // Every restart counts here: one rank after the other is replaced.
  EXPECT_EQ(nodes[0].meeting->count_restart().value(), 1);
  EXPECT_EQ(nodes[0].meeting->count_restart().value(), 2);
  EXPECT_EQ(nodes[1].meeting->count_restart().value(), 3);
  nodes.erase(nodes.begin() + 1);
  EXPECT_TRUE(nodes[0].wait_for(Kind::node_lost));
  EXPECT_TRUE(nodes[1].wait_for(Kind::node_lost));
  const auto deadline = in(10s);
  while (!nodes.back().meeting->newest_roster() && !deadline.expired()) std::this_thread::sleep_for(5ms);
  EXPECT_EQ(nodes.back().meeting->newest_roster(), "1\nx");
}

TEST_F(StoreMeetings, TheNewestRosterReachesAll) {
  options_.job.elastic = true;
  auto nodes = meet(2);
  EXPECT_EQ(nodes[0].meeting->publish_roster("no number").code(), StatusCode::invalid_argument);
  ASSERT_TRUE(nodes[0].meeting->publish_roster("3\nthree").ok());
  ASSERT_TRUE(nodes[1].meeting->publish_roster("4\nfour").ok());
  ASSERT_TRUE(nodes[0].meeting->publish_roster("2\ntwo").ok());
  const auto deadline = in(10s);
  while (nodes[0].meeting->newest_roster() != "4\nfour" && !deadline.expired()) std::this_thread::sleep_for(5ms);
  EXPECT_EQ(nodes[0].meeting->newest_roster(), "4\nfour");
  EXPECT_EQ(nodes[1].meeting->newest_roster(), "4\nfour");
}

TEST_F(StoreMeetings, TheSecondEndpointServesIfTheFirstIsDead) {
  const testing::ReservedPort dead;
  options_.endpoints = {{"127.0.0.1", dead.port()}, {"127.0.0.1", 0}};
  Node first = open();
  options_.endpoints[1].port = parse_host_port(first.meeting->address())->port;
  Node second = open();
  second.ask();  // asks before there is a coordinator
  first.ask();
  EXPECT_EQ(first.round().world_size, 2);
  EXPECT_EQ(second.round().world_size, 2);
}

}  // namespace
}  // namespace lockstep::launch
