// Ctrl-C, SIGTERM, and kill -9 of the launcher.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

#include "launch/launcher.h"

namespace lockstep::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

double seconds_since(Deadline::Clock::time_point start) {
  return std::chrono::duration<double>(Deadline::Clock::now() - start).count();
}

void expect_all_ready(Launcher& launcher, int ranks) {
  for (int rank = 0; rank < ranks; ++rank)
    ASSERT_TRUE(launcher.wait_for_line("ready " + std::to_string(rank))) << launcher.report();
}

TEST(LaunchSignals, InterruptsAndTerminationsEndAllRanks) {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    Launcher launcher({"--nproc-per-node", "3", rank_program(), "wait"});
    expect_all_ready(launcher, 3);
    launcher.kill(signal);
    EXPECT_EQ(launcher.wait(), 128 + signal) << launcher.report();
    EXPECT_THAT(launcher.err(), HasSubstr("interrupted by signal " + std::to_string(signal)));
    EXPECT_TRUE(launcher.nothing_left());
    EXPECT_THAT(launcher.folders_left(), IsEmpty());
  }
}

TEST(LaunchSignals, RanksThatDoNotEndAreKilledAfterTheGracePeriod) {
  Launcher launcher({"--nproc-per-node", "2", "--shutdown-timeout", "0.5", rank_program(), "ignore"});
  expect_all_ready(launcher, 2);
  const auto start = Deadline::Clock::now();
  launcher.kill(SIGTERM);
  EXPECT_EQ(launcher.wait(), 128 + SIGTERM) << launcher.report();
  EXPECT_GE(seconds_since(start), 0.5);
  EXPECT_THAT(launcher.out(), HasSubstr("got SIGTERM"));
  EXPECT_THAT(launcher.err(), HasSubstr("rank 0, 1 did not end within 0.5 s"));
  EXPECT_TRUE(launcher.nothing_left());
}

TEST(LaunchSignals, ASecondInterruptIsImmediate) {
  Launcher launcher({"--nproc-per-node", "2", "--shutdown-timeout", "600", rank_program(), "ignore"});
  expect_all_ready(launcher, 2);
  launcher.kill(SIGINT);
  ASSERT_TRUE(launcher.wait_for_line("got SIGINT"));
  // One that arrives with the first counts as the same, so it is repeated until it counts.
  const auto start = Deadline::Clock::now();
  while (!launcher.wait_for_line("killed immediately", 0.1) && seconds_since(start) < 20) launcher.kill(SIGINT);
  EXPECT_EQ(launcher.wait(), 128 + SIGINT) << launcher.report();
  EXPECT_LT(seconds_since(start), 20);
  EXPECT_TRUE(launcher.nothing_left());
}

TEST(LaunchSignals, AStoppedRankEndsToo) {
  Launcher launcher({rank_program(), "wait"});
  expect_all_ready(launcher, 1);
  for (const pid_t pid : launcher.descendants()) ::kill(pid, SIGSTOP);
  launcher.kill(SIGTERM);
  EXPECT_EQ(launcher.wait(), 128 + SIGTERM) << launcher.report();
}

TEST(LaunchSignals, KillingTheLauncherLeavesNoOrphans) {
  // Each rank is a shell with a child and a grandchild, which the kernel would not end with the launcher.
  Launcher launcher(
      {"--nproc-per-node", "3", "sh", "-c", "sh -c 'sleep 600 & wait' & sleep 600 & echo ready $RANK; wait"});
  expect_all_ready(launcher, 3);
  const Deadline deadline = in_seconds(10);
  while (launcher.descendants().size() < 12 && !deadline.expired()) {
  }
  ASSERT_GE(launcher.descendants().size(), 12U);
  launcher.kill(SIGKILL);
  EXPECT_EQ(launcher.wait(), -SIGKILL);
  EXPECT_TRUE(launcher.nothing_left());
  const Deadline removed = in_seconds(10);
  while (!launcher.folders_left().empty() && !removed.expired()) {
  }
  EXPECT_THAT(launcher.folders_left(), IsEmpty());
}

// A rank sees the same as the launcher itself.
void expect_as_without_launcher(const std::string& command) {
  ProcessSet direct = start_program(1, {"sh", "-c", command});
  ASSERT_TRUE(direct.wait_all(in_seconds(20)));
  Launcher launcher({"--no-prefix", "sh", "-c", command});
  EXPECT_EQ(launcher.wait(), 0) << launcher.report();
  EXPECT_EQ(launcher.out(), direct.output(0));
}

TEST(LaunchSignals, RanksGetSignalsUnblockedAndAtTheirDefaults) {
  // Signals 1 to 32: the C library uses some of the real-time ones itself.
  expect_as_without_launcher("sed -nE 's/^(Sig(Blk|Ign|Cgt)).*(.{8})$/\\1 \\3/p' /proc/self/status");
}

TEST(LaunchSignals, RanksInheritNoDescriptorsOfTheLaunchersButTheirRecorders) {
  expect_as_without_launcher("record=${LOCKSTEP_RECORD%%:*}; ls /proc/self/fd | grep -vx \"${record:-none}\"");
}

}  // namespace
}  // namespace lockstep::testing
