// Nodes that meet, or fail to.
#include <gmock/gmock.h>

#include "launch_nodes/node_launcher.h"

namespace lockstep::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using Nodes = std::vector<std::unique_ptr<Launcher>>;

// Node i starts i + 1 ranks; all sum up.
void expect_sum_over(int count) {
  LOCKSTEP_MAKE_HOSTS_OR_SKIP(hosts, count);
  Nodes nodes;
  for (int host = 0; host < count; ++host) {
    nodes.push_back(start_node(hosts, host,
                               {.arguments = {"--nnodes", std::to_string(count), "--node-rank", std::to_string(host),
                                              "--nproc-per-node", std::to_string(host + 1)},
                                .program = {SUM_RANK}}));
  }
  const int world = count * (count + 1) / 2;
  int rank = 0;
  for (int host = 0; host < count; ++host) {
    auto& node = *nodes[static_cast<std::size_t>(host)];
    ASSERT_EQ(node.wait(), 0) << report_of(nodes);
    for (int local = 0; local <= host; ++local, ++rank) {
      EXPECT_THAT(node.out(), HasSubstr(fmt::format("rank {} of {}: sum {}", rank, world, world * (world + 1) / 2)));
    }
    EXPECT_TRUE(node.nothing_left());
    EXPECT_THAT(node.folders_left(), ::testing::IsEmpty());
  }
}

TEST(LaunchNodes, TwoHostsOfUnequalSize) { expect_sum_over(2); }
TEST(LaunchNodes, ThreeHostsOfUnequalSize) { expect_sum_over(3); }
TEST(LaunchNodes, FourHostsOfUnequalSize) { expect_sum_over(4); }

TEST(LaunchNodes, TheHostOfTheEndpointMayStartLast) {
  LOCKSTEP_MAKE_HOSTS_OR_SKIP(hosts, 2);
  Nodes nodes;
  const NodeOptions options{
      .arguments = {"--nnodes", "2"}, .program = {SUM_RANK}, .environment = {{"LOCKSTEP_LOG", "info"}}};
  nodes.push_back(start_node(hosts, 1, options));
  // There is no coordinator to join yet.
  ASSERT_FALSE(nodes[0]->wait_for_line("joined the coordinator", 1));
  nodes.push_back(start_node(hosts, 0, options));
  for (auto& node : nodes) {
    EXPECT_EQ(node->wait(), 0) << report_of(nodes);
    EXPECT_THAT(node->out(), HasSubstr("sum 3"));
  }
}

TEST(LaunchNodes, TheSecondEndpointIsUsedIfTheFirstHostIsDown) {
  LOCKSTEP_MAKE_HOSTS_OR_SKIP(hosts, 3);
  ASSERT_TRUE(hosts.cut_link(0).ok());
  Nodes nodes;
  for (const int host : {1, 2}) {
    // This second --rdzv-endpoint takes precedence over start_node's.
    nodes.push_back(
        start_node(hosts, host,
                   {.arguments = {"--nnodes", "2", "--rdzv-endpoint",
                                  fmt::format("{}:29400,{}:29400", HostSet::address(0), HostSet::address(1))},
                    .program = {SUM_RANK}}));
  }
  for (auto& node : nodes) EXPECT_EQ(node->wait(), 0) << report_of(nodes);
}

TEST(LaunchNodes, ATimeoutListsTheNodesThatArrived) {
  LOCKSTEP_MAKE_HOSTS_OR_SKIP(hosts, 3);
  Nodes nodes;
  for (const int host : {0, 1}) {
    nodes.push_back(
        start_node(hosts, host, {.arguments = {"--nnodes", "3", "--start-timeout", "3"}, .program = {SUM_RANK}}));
  }
  for (auto& node : nodes) {
    EXPECT_EQ(node->wait(), 3) << report_of(nodes);
    EXPECT_THAT(node->err(), AllOf(HasSubstr("did not meet within 3.0 s"), HasSubstr("of 3 nodes have arrived")));
    EXPECT_THAT(node->out(), Not(HasSubstr("sum")));
  }
}

TEST(LaunchNodes, AMissingCoordinatorIsReported) {
  LOCKSTEP_MAKE_HOSTS_OR_SKIP(hosts, 2);
  const auto node =
      start_node(hosts, 1, {.arguments = {"--nnodes", "2", "--start-timeout", "2"}, .program = {SUM_RANK}});
  EXPECT_EQ(node->wait(), 3) << node->report();
  EXPECT_THAT(node->err(), HasSubstr("there is no coordinator at 10.77.0.1:29400"));
}

TEST(LaunchNodes, ANodeWithOtherOptionsIsRefused) {
  LOCKSTEP_MAKE_HOSTS_OR_SKIP(hosts, 3);
  Nodes nodes;
  nodes.push_back(start_node(hosts, 0, {.arguments = {"--nnodes", "2", "--rdzv-id", "a"}, .program = {SUM_RANK}}));
  const auto other = start_node(hosts, 2, {.arguments = {"--nnodes", "3", "--rdzv-id", "a"}, .program = {SUM_RANK}});
  EXPECT_EQ(other->wait(), 3);
  EXPECT_THAT(other->err(), AllOf(HasSubstr("was started with --nnodes 3"), HasSubstr("with --nnodes 2;")));
  const auto foreign = start_node(hosts, 2, {.arguments = {"--nnodes", "2", "--rdzv-id", "b"}, .program = {SUM_RANK}});
  EXPECT_EQ(foreign->wait(), 3);
  EXPECT_THAT(foreign->err(), AllOf(HasSubstr("was started with --rdzv-id 'b'"), HasSubstr("with --rdzv-id 'a'")));
  nodes.push_back(start_node(hosts, 1, {.arguments = {"--nnodes", "2", "--rdzv-id", "a"}, .program = {SUM_RANK}}));
  for (auto& node : nodes) EXPECT_EQ(node->wait(), 0) << report_of(nodes);
}

TEST(LaunchNodes, SeveralHostsNeedASecret) {
  LOCKSTEP_MAKE_HOSTS_OR_SKIP(hosts, 2);
  const auto node = start_node(
      hosts, 0,
      {.arguments = {"--nnodes", "2"}, .program = {SUM_RANK}, .environment = {{"LOCKSTEP_SECRET", std::nullopt}}});
  EXPECT_NE(node->wait(), 0);
  EXPECT_THAT(node->err(), AllOf(HasSubstr("LOCKSTEP_SECRET_FILE"), HasSubstr("openssl rand")));
}

TEST(LaunchNodes, AnAccidentalWorldOfOneCausesAWarning) {
  LOCKSTEP_MAKE_HOSTS_OR_SKIP(hosts, 2);
  const auto node = start_node(hosts, 1, {.program = {SUM_RANK}});
  EXPECT_EQ(node->wait(), 0) << node->report();
  EXPECT_THAT(node->err(), HasSubstr("10.77.0.1:29400 is another host, but --nnodes is 1"));
  const auto slurm = start_node(hosts, 0, {.program = {SUM_RANK}, .environment = {{"SLURM_NNODES", "4"}}});
  EXPECT_EQ(slurm->wait(), 0) << slurm->report();
  EXPECT_THAT(slurm->err(), HasSubstr("Slurm gave 4 hosts to this job"));
}

// Like a PyTorch script: rank 0 listens on the master's port, regardless of where the nodes meet.
constexpr const char* kListen = R"(
import os, socket, time
master = (os.environ['MASTER_ADDR'], int(os.environ['MASTER_PORT']))
if os.environ['RANK'] == '0':
    with socket.create_server(master) as server:
        peer, _ = server.accept()
        peer.sendall(b'hello')
        print('rank 0 was found', flush=True)
else:
    while True:
        try:
            peer = socket.create_connection(master)
            break
        except ConnectionRefusedError:
            time.sleep(0.01)
    print('rank 0 says', peer.recv(5).decode(), flush=True)
)";

TEST(LaunchNodes, RankZeroCanServeAStoreOfItsOwn) {
  LOCKSTEP_MAKE_HOSTS_OR_SKIP(hosts, 2);
  Nodes nodes;
  for (const int host : {0, 1}) {  // rank 0 is not on the host of the endpoint
    nodes.push_back(start_node(
        hosts, host,
        {.arguments = {"--nnodes", "2", "--node-rank", std::to_string(1 - host), "--serve-store", "no", "--no-python"},
         .program = {"python3", "-c", kListen}}));
  }
  for (auto& node : nodes) EXPECT_EQ(node->wait(), 0) << report_of(nodes);
  EXPECT_THAT(nodes[0]->out(), HasSubstr("rank 0 says hello"));
  EXPECT_THAT(nodes[1]->out(), HasSubstr("rank 0 was found"));
}

TEST(LaunchNodes, AFailureOnOneNodeRestartsAllAndAllReturnItsExitCode) {
  LOCKSTEP_MAKE_HOSTS_OR_SKIP(hosts, 2);
  Nodes nodes;
  for (const int host : {0, 1}) {
    nodes.push_back(
        start_node(hosts, host,
                   {.arguments = {"--nnodes", "2", "--node-rank", std::to_string(host), "--max-restarts", "1"},
                    .program = {"sh", "-c",
                                "echo attempt $TORCHELASTIC_RESTART_COUNT; "
                                "[ $RANK = 1 ] && exit 5; exec sleep 600"}}));
  }
  for (auto& node : nodes) {
    EXPECT_EQ(node->wait(), 5) << report_of(nodes);
    EXPECT_THAT(node->out(), AllOf(HasSubstr("attempt 0"), HasSubstr("attempt 1"), Not(HasSubstr("attempt 2"))));
    EXPECT_THAT(node->err(), HasSubstr("rank 1"));
    EXPECT_TRUE(node->nothing_left());
  }
}

}  // namespace
}  // namespace lockstep::testing
