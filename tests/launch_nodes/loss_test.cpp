// Nodes that are lost, and return.
#include <gmock/gmock.h>

#include <chrono>
#include <csignal>
#include <functional>

#include "launch_nodes/node_launcher.h"
#include "support/process_set.h"

namespace lockstep::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using Nodes = std::vector<std::unique_ptr<Launcher>>;

// `count` nodes with one rank each, which waits as long as the world is complete.
Nodes start_waiting(const HostSet& hosts, int count, const std::string& nnodes) {
  Nodes nodes;
  for (int host = 0; host < count; ++host) {
    nodes.push_back(start_node(hosts, host,
                               {.arguments = {"--nnodes", nnodes, "--node-rank", std::to_string(host), "--last-call",
                                              "1", "--node-timeout", "3"},
                                .program = wait_in_world_of(count)}));
  }
  for (auto& node : nodes) EXPECT_TRUE(node->wait_for_line("waiting")) << report_of(nodes);
  return nodes;
}

int count_of(const std::string& text, const std::string& part) {
  int count = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

double seconds_until_line(Launcher& node, const std::string& text) {
  const auto began = std::chrono::steady_clock::now();
  EXPECT_TRUE(node.wait_for_line(text)) << node.report();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
}

TEST(LaunchNodeLoss, AKilledNodeIsDetectedWithinASecondAndTheOthersContinue) {
  LOCKSTEP_MAKE_HOSTS_OR_SKIP(hosts, 3);
  Nodes nodes = start_waiting(hosts, 3, "2:3");
  nodes[2]->kill(SIGKILL);
  EXPECT_LT(seconds_until_line(*nodes[0], "was lost"), 1);
  EXPECT_LT(seconds_until_line(*nodes[1], "was lost"), 1);
  for (const std::size_t i : {0, 1}) {
    EXPECT_EQ(nodes[i]->wait(), 0) << report_of(nodes);
    EXPECT_THAT(nodes[i]->out(), HasSubstr(fmt::format("rank {} of 2: sum 3", i)));
  }
  EXPECT_TRUE(nodes[2]->nothing_left());
}

TEST(LaunchNodeLoss, AKilledEndpointIsDetectedWithinASecondAndTheOthersContinue) {
  LOCKSTEP_MAKE_HOSTS_OR_SKIP(hosts, 3);
  Nodes nodes = start_waiting(hosts, 3, "2:3");
  nodes[0]->kill(SIGKILL);
  EXPECT_LT(seconds_until_line(*nodes[1], "was lost"), 1);
  EXPECT_LT(seconds_until_line(*nodes[2], "was lost"), 1);
  for (const std::size_t i : {1, 2}) {
    EXPECT_EQ(nodes[i]->wait(), 0) << report_of(nodes);
    EXPECT_THAT(nodes[i]->out(), HasSubstr("of 2: sum 3"));
  }
}

TEST(LaunchNodeLoss, AllButOneMayDieAtOnce) {
  LOCKSTEP_MAKE_HOSTS_OR_SKIP(hosts, 4);
  Nodes nodes = start_waiting(hosts, 4, "1:4");
  for (const std::size_t i : {0, 1, 2}) nodes[i]->kill(SIGKILL);
  EXPECT_EQ(nodes[3]->wait(), 0) << report_of(nodes);
  EXPECT_THAT(nodes[3]->out(), HasSubstr("rank 0 of 1: sum 1"));
}

TEST(LaunchNodeLoss, WithoutRestartsAJobOfFixedSizeEnds) {
  LOCKSTEP_MAKE_HOSTS_OR_SKIP(hosts, 2);
  Nodes nodes = start_waiting(hosts, 2, "2");
  nodes[1]->kill(SIGKILL);
  EXPECT_EQ(nodes[0]->wait(), 3) << report_of(nodes);
  EXPECT_THAT(nodes[0]->err(), HasSubstr("was lost"));
  EXPECT_THAT(nodes[0]->err(), HasSubstr("--max-restarts"));
}

// A job of fixed size that may restart waits for the lost node, be it the endpoint's or another.
void expect_return_of(int lost) {
  LOCKSTEP_MAKE_HOSTS_OR_SKIP(hosts, 2);
  Nodes nodes;
  const auto start = [&](int host) {
    return start_node(hosts, host,
                      {.arguments = {"--nnodes", "2", "--node-rank", std::to_string(host), "--node-timeout", "3",
                                     "--max-restarts", "1"},
                       .program = {"sh", "-c", "echo waiting as $RANK; exec sleep 600"}});
  };
  nodes.push_back(start(0));
  nodes.push_back(start(1));
  for (auto& node : nodes) ASSERT_TRUE(node->wait_for_line("waiting")) << report_of(nodes);
  auto& gone = nodes[static_cast<std::size_t>(lost)];
  auto& stays = nodes[static_cast<std::size_t>(1 - lost)];
  gone->kill(SIGKILL);
  ASSERT_TRUE(stays->wait_for_line("was lost")) << report_of(nodes);
  gone = start(lost);
  // Both restart their ranks, with the same rank numbers as before.
  ASSERT_TRUE(gone->wait_for_line(fmt::format("waiting as {}", lost))) << report_of(nodes);
  const auto deadline = in_seconds(30);
  while (count_of(stays->out(), "waiting") < 2 && !deadline.expired()) ::usleep(10000);
  for (auto& node : nodes) node->kill(SIGTERM);
  for (auto& node : nodes) node->wait();
  EXPECT_EQ(count_of(stays->out(), fmt::format("waiting as {}", 1 - lost)), 2) << report_of(nodes);
}

TEST(LaunchNodeLoss, ANodeThatReturnsRejoins) { expect_return_of(1); }
TEST(LaunchNodeLoss, TheEndpointsNodeThatReturnsRejoins) { expect_return_of(0); }

TEST(LaunchNodeLoss, ACutLinkStopsTheSmallerPartOnly) {
  LOCKSTEP_MAKE_HOSTS_OR_SKIP(hosts, 3);
  Nodes nodes = start_waiting(hosts, 3, "1:3");
  ASSERT_TRUE(hosts.cut_link(2).ok());
  EXPECT_LT(seconds_until_line(*nodes[0], "was lost"), 6);
  for (const std::size_t i : {0, 1}) {
    EXPECT_EQ(nodes[i]->wait(), 0) << report_of(nodes);
    EXPECT_THAT(nodes[i]->out(), HasSubstr("of 2: sum 3"));
  }
  // By itself it cannot know that the others have ended.
  EXPECT_TRUE(nodes[2]->wait_for_line("was lost")) << report_of(nodes);
  EXPECT_FALSE(nodes[2]->wait_for_line("sum", 3)) << report_of(nodes);
  nodes[2]->kill(SIGTERM);
  EXPECT_EQ(nodes[2]->wait(), 143) << report_of(nodes);
  EXPECT_THAT(nodes[2]->out(), Not(HasSubstr("sum")));
}

TEST(LaunchNodeLoss, ACutLinkOfTheEndpointMovesTheCoordinator) {
  LOCKSTEP_MAKE_HOSTS_OR_SKIP(hosts, 3);
  Nodes nodes = start_waiting(hosts, 3, "1:3");
  ASSERT_TRUE(hosts.cut_link(0).ok());
  for (const std::size_t i : {1, 2}) {
    EXPECT_EQ(nodes[i]->wait(), 0) << report_of(nodes);
    EXPECT_THAT(nodes[i]->out(), HasSubstr("of 2: sum 3"));
  }
  EXPECT_FALSE(nodes[0]->wait_for_line("sum", 2)) << report_of(nodes);
}

// The coordinator's node is silent for a while and then returns. Meanwhile the others have a new coordinator, which
// still waits for more nodes (--last-call). At the end all three are together, and no part has continued alone.
void expect_reunion(const std::function<void(HostSet&, Launcher&)>& silence,
                    const std::function<void(HostSet&, Launcher&)>& wake) {
  LOCKSTEP_MAKE_HOSTS_OR_SKIP(hosts, 3);
  Nodes nodes;
  for (int host = 0; host < 3; ++host) {
    nodes.push_back(start_node(hosts, host,
                               {.arguments = {"--nnodes", "1:3", "--node-rank", std::to_string(host), "--last-call",
                                              "60", "--node-timeout", "3"},
                                .program = {"sh", "-c", "echo round of $WORLD_SIZE; exec sleep 600"}}));
  }
  for (auto& node : nodes) ASSERT_TRUE(node->wait_for_line("round of 3")) << report_of(nodes);
  silence(hosts, *nodes[0]);
  for (const std::size_t i : {1, 2}) ASSERT_TRUE(nodes[i]->wait_for_line("was lost")) << report_of(nodes);
  wake(hosts, *nodes[0]);
  const auto deadline = in_seconds(40);
  for (auto& node : nodes) {
    while (count_of(node->out(), "round of 3") < 2 && !deadline.expired()) ::usleep(10000);
    EXPECT_EQ(count_of(node->out(), "round of 3"), 2) << report_of(nodes);
    EXPECT_THAT(node->out(), Not(HasSubstr("round of 1")));
    EXPECT_THAT(node->out(), Not(HasSubstr("round of 2")));
  }
}

TEST(LaunchNodeLoss, ANodeRejoinsWhenItsLinkIsRestored) {
  expect_reunion([](HostSet& hosts, Launcher&) { ASSERT_TRUE(hosts.cut_link(0).ok()); },
                 [](HostSet& hosts, Launcher&) { ASSERT_TRUE(hosts.restore_link(0).ok()); });
}

TEST(LaunchNodeLoss, AFirewallThatRejectsDoesNotSplitTheJob) {
  LOCKSTEP_MAKE_HOSTS_OR_SKIP(hosts, 2);
  Nodes nodes = start_waiting(hosts, 2, "1:2");
  for (const int host : {0, 1}) {
    const Status set = hosts.set_firewall(host, HostSet::Firewall::reject);
    if (!set.ok()) GTEST_SKIP() << set.message();
  }
  // The half with the first node continues; for the other one, it may be alive.
  EXPECT_EQ(nodes[0]->wait(), 0) << report_of(nodes);
  EXPECT_THAT(nodes[0]->out(), HasSubstr("rank 0 of 1: sum 1"));
  EXPECT_TRUE(nodes[1]->wait_for_line("was lost")) << report_of(nodes);
  EXPECT_FALSE(nodes[1]->wait_for_line("sum", 3)) << report_of(nodes);
  nodes[1]->kill(SIGTERM);
  EXPECT_EQ(nodes[1]->wait(), 143) << report_of(nodes);
  EXPECT_THAT(nodes[1]->out(), Not(HasSubstr("sum")));
}

TEST(LaunchNodeLoss, ANodeRejoinsAfterAFirewallHasRejectedItsPackets) {
  expect_reunion(
      [](HostSet& hosts, Launcher&) {
        const Status set = hosts.set_firewall(0, HostSet::Firewall::reject);
        if (!set.ok()) GTEST_SKIP() << set.message();
      },
      [](HostSet& hosts, Launcher&) { ASSERT_TRUE(hosts.set_firewall(0, HostSet::Firewall::open).ok()); });
}

// The launcher and its guard, as if the machine had lost power: nothing is left to attest anything.
void kill_host(Launcher& node) {
  for (const pid_t pid : node.descendants()) {
    if (content_of(fmt::format("/proc/{}/comm", pid)) == "lockstep-guard\n") ::kill(pid, SIGKILL);
  }
  node.kill(SIGKILL);
}

TEST(LaunchNodeLoss, WithoutAGuardTheOtherHalfWaits) {
  LOCKSTEP_MAKE_HOSTS_OR_SKIP(hosts, 2);
  Nodes nodes = start_waiting(hosts, 2, "1:2");
  kill_host(*nodes[0]);
  EXPECT_TRUE(nodes[1]->wait_for_line("was lost")) << report_of(nodes);
  EXPECT_FALSE(nodes[1]->wait_for_line("sum", 3)) << report_of(nodes);
}

// `lockstep witness` on a third host.
ProcessSet start_witness(const HostSet& hosts) {
  return start_program(1,
                       {"nsenter", fmt::format("--net=/proc/{}/fd/{}", ::getpid(), hosts.namespace_fd(2)),
                        LOCKSTEP_COMMAND, "witness", "--listen", HostSet::address(2) + ":29401"},
                       {.environment = {{"LOCKSTEP_SECRET", "the secret of a test, and no other one"}}});
}

Nodes start_two_with_witness(const HostSet& hosts) {
  Nodes nodes;
  for (int host = 0; host < 2; ++host) {
    nodes.push_back(start_node(hosts, host,
                               {.arguments = {"--nnodes", "1:2", "--node-rank", std::to_string(host), "--last-call",
                                              "1", "--node-timeout", "3", "--witness", HostSet::address(2) + ":29401"},
                                .program = wait_in_world_of(2)}));
  }
  for (auto& node : nodes) EXPECT_TRUE(node->wait_for_line("waiting")) << report_of(nodes);
  return nodes;
}

TEST(LaunchNodeLoss, WithAWitnessEitherOfTwoHostsMayBeLost) {
  LOCKSTEP_MAKE_HOSTS_OR_SKIP(hosts, 3);
  ProcessSet witness = start_witness(hosts);
  ASSERT_TRUE(witness.wait_for_line(0, "listening", in_seconds(10))) << witness.report();
  Nodes nodes = start_two_with_witness(hosts);
  kill_host(*nodes[0]);
  EXPECT_EQ(nodes[1]->wait(), 0) << report_of(nodes);
  EXPECT_THAT(nodes[1]->out(), HasSubstr("rank 0 of 1: sum 1"));
  witness.kill(0, SIGTERM);
}

TEST(LaunchNodeLoss, WithAWitnessOneOfTwoHostsContinuesWhenTheyAreCutOff) {
  LOCKSTEP_MAKE_HOSTS_OR_SKIP(hosts, 3);
  ProcessSet witness = start_witness(hosts);
  ASSERT_TRUE(witness.wait_for_line(0, "listening", in_seconds(10))) << witness.report();
  Nodes nodes = start_two_with_witness(hosts);
  ASSERT_TRUE(hosts.cut_link(0).ok());
  EXPECT_EQ(nodes[1]->wait(), 0) << report_of(nodes);
  EXPECT_THAT(nodes[1]->out(), HasSubstr("rank 0 of 1: sum 1"));
  EXPECT_FALSE(nodes[0]->wait_for_line("sum", 3)) << report_of(nodes);
  witness.kill(0, SIGTERM);
}

TEST(LaunchNodeLoss, TheLossOfTheWitnessChangesNothing) {
  LOCKSTEP_MAKE_HOSTS_OR_SKIP(hosts, 3);
  ProcessSet witness = start_witness(hosts);
  ASSERT_TRUE(witness.wait_for_line(0, "listening", in_seconds(10))) << witness.report();
  Nodes nodes = start_two_with_witness(hosts);
  witness.kill(0, SIGKILL);
  EXPECT_FALSE(nodes[0]->wait_for_line("lost", 3)) << report_of(nodes);
  nodes[0]->kill(SIGKILL);  // its guard attests it
  EXPECT_EQ(nodes[1]->wait(), 0) << report_of(nodes);
}

TEST(LaunchNodeLoss, OfTwoNodesEitherMayBeKilled) {
  LOCKSTEP_MAKE_HOSTS_OR_SKIP(hosts, 2);
  Nodes nodes = start_waiting(hosts, 2, "1:2");
  nodes[0]->kill(SIGKILL);  // the first, and the coordinator: its guard attests its end
  EXPECT_LT(seconds_until_line(*nodes[1], "was lost"), 1);
  EXPECT_EQ(nodes[1]->wait(), 0) << report_of(nodes);
  EXPECT_THAT(nodes[1]->out(), HasSubstr("rank 0 of 1: sum 1"));
  EXPECT_TRUE(nodes[0]->nothing_left());
}

TEST(LaunchNodeLoss, AStoppedCoordinatorDetectsThatItWasReplaced) {
  expect_reunion([](HostSet&, Launcher& coordinator) { coordinator.kill(SIGSTOP); },
                 [](HostSet&, Launcher& coordinator) { coordinator.kill(SIGCONT); });
}

}  // namespace
}  // namespace lockstep::testing
