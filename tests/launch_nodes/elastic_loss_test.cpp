// An elastic job on two hosts, one of which is lost as a whole: with a witness either half continues, without one only
// the half with the first rank.
#include <gmock/gmock.h>

#include <csignal>
#include <fstream>

#include "launch_nodes/node_launcher.h"
#include "support/process_set.h"

namespace lockstep::testing {
namespace {

constexpr int kRanks = 2;  // on each host
constexpr const char* kWitness = ":29401";

// What a rank of the half that continues prints. The number of its generation depends on how many ranks were still
// there when the first of them was found lost.
constexpr const char* kContinues = "rank 0 of 2 step";

class ElasticHosts : public ::testing::Test {
 protected:
  ProcessSet start_witness(const HostSet& hosts) const {
    ProcessSet witness =
        start_program(1,
                      {"nsenter", fmt::format("--net=/proc/{}/fd/{}", ::getpid(), hosts.namespace_fd(2)),
                       lockstep_program(), "witness", "--listen", HostSet::address(2) + kWitness},
                      {.environment = {{"LOCKSTEP_SECRET", "the secret of a test, and no other one"}}});
    EXPECT_TRUE(witness.wait_for_line(0, "listening", in_seconds(20))) << witness.report();
    return witness;
  }

  // On the first two hosts; returns when all ranks train.
  void start(const HostSet& hosts, bool with_witness) {
    for (int host = 0; host < 2; ++host) {
      NodeOptions options{
          .arguments = {"--elastic", "--nnodes", "2:2", "--nproc-per-node", std::to_string(kRanks), "--node-rank",
                        std::to_string(host), "--node-timeout", "3", "--max-restarts", "0"},
          .program = {COUNTING_PROGRAM},
          .environment = {
              {"FINISH", folder_.path("finish")}, {"PEER_TIMEOUT_MS", "3000"}, {"SILENT_TIMEOUT_MS", "2000"}}};
      if (with_witness)
        options.arguments.insert(options.arguments.end(), {"--witness", HostSet::address(2) + kWitness});
      nodes_.push_back(start_node(hosts, host, options));
    }
    for (int host = 0; host < 2; ++host) {
      for (int rank = kRanks * host; rank < kRanks * (host + 1); ++rank) {
        expect_line(host, fmt::format("generation 1 rank {} of 4", rank));
      }
    }
  }

  Launcher& node(int host) { return *nodes_.at(static_cast<std::size_t>(host)); }
  void expect_line(int host, const std::string& text) {
    EXPECT_TRUE(node(host).wait_for_line(text)) << "no line '" << text << "' on host " << host << "\n"
                                                << report_of(nodes_);
  }
  void expect_no_line(int host, const std::string& text) {
    EXPECT_FALSE(node(host).wait_for_line(text, 3)) << report_of(nodes_);
  }

  // Everything that was started there, the guard first: nothing is left to attest anything.
  void kill_host(int host) {
    const std::vector<pid_t> descendants = node(host).descendants();
    for (const pid_t pid : descendants) {
      if (content_of(fmt::format("/proc/{}/comm", pid)) == "lockstep-guard\n") ::kill(pid, SIGKILL);
    }
    node(host).kill(SIGKILL);
    for (const pid_t pid : descendants) ::kill(pid, SIGKILL);
  }

  void expect_that_it_finishes(int host) {
    std::ofstream(folder_.path("finish")).put('\n');
    EXPECT_EQ(node(host).wait(), 0) << report_of(nodes_);
    EXPECT_THAT(node(host).out(), ::testing::HasSubstr("finished at step")) << report_of(nodes_);
  }

  TestFolder folder_;
  std::vector<std::unique_ptr<Launcher>> nodes_;
};

TEST_F(ElasticHosts, WithAWitnessTheSecondHalfContinuesAfterTheFirstWasKilled) {
  LOCKSTEP_MAKE_HOSTS_OR_SKIP(hosts, 3);
  const ProcessSet witness = start_witness(hosts);
  start(hosts, /*with_witness=*/true);
  kill_host(0);
  expect_line(1, kContinues);
  expect_that_it_finishes(1);
}

TEST_F(ElasticHosts, WithAWitnessTheFirstHalfContinuesAfterTheSecondWasKilled) {
  LOCKSTEP_MAKE_HOSTS_OR_SKIP(hosts, 3);
  const ProcessSet witness = start_witness(hosts);
  start(hosts, /*with_witness=*/true);
  kill_host(1);
  expect_line(0, kContinues);
  expect_that_it_finishes(0);
}

TEST_F(ElasticHosts, WithAWitnessTheHalfThatReachesItContinuesAndTheOtherRejoinsLater) {
  LOCKSTEP_MAKE_HOSTS_OR_SKIP(hosts, 3);
  const ProcessSet witness = start_witness(hosts);
  start(hosts, /*with_witness=*/true);
  ASSERT_TRUE(hosts.cut_link(0).ok());
  expect_line(1, kContinues);
  expect_line(0, "waiting: ");
  EXPECT_THAT(node(0).out(), ::testing::Not(::testing::HasSubstr(kContinues))) << report_of(nodes_);
  ASSERT_TRUE(hosts.restore_link(0).ok());
  expect_line(0, " of 4 step");
  expect_line(1, "rank 1 of 4");
  expect_that_it_finishes(1);
  EXPECT_EQ(node(0).wait(), 0) << report_of(nodes_);
}

TEST_F(ElasticHosts, WithoutAWitnessTheSecondHalfWaits) {
  LOCKSTEP_MAKE_HOSTS_OR_SKIP(hosts, 2);
  start(hosts, /*with_witness=*/false);
  kill_host(0);
  expect_line(1, "waiting: ");
  expect_no_line(1, kContinues);
}

TEST_F(ElasticHosts, WithoutAWitnessTheFirstHalfContinues) {
  LOCKSTEP_MAKE_HOSTS_OR_SKIP(hosts, 2);
  start(hosts, /*with_witness=*/false);
  kill_host(1);
  expect_line(0, kContinues);
  expect_that_it_finishes(0);
}

// Nothing answers: each probe of one of its two ranks takes its whole time.
TEST_F(ElasticHosts, WithAWitnessTheSecondHalfContinuesAfterTheFirstLostPower) {
  LOCKSTEP_MAKE_HOSTS_OR_SKIP(hosts, 3);
  const ProcessSet witness = start_witness(hosts);
  start(hosts, /*with_witness=*/true);
  ASSERT_TRUE(hosts.cut_link(0).ok());
  kill_host(0);
  expect_line(1, kContinues);
  expect_that_it_finishes(1);
}

}  // namespace
}  // namespace lockstep::testing
