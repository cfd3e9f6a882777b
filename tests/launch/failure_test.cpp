// What the launcher reports about ranks that fail.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

#include "launch/launcher.h"

namespace lockstep::testing {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;  // the sanitizer reports crashes itself
#else
constexpr bool kSanitized = false;
#endif

TEST(LaunchFailure, TheExitCodeIsTheRanksAndTheReportNamesIt) {
  Launcher launcher(
      {"--nproc-per-node", "3", "sh", "-c", "if [ $RANK = 1 ]; then echo no space left >&2; exit 7; fi; sleep 60"});
  EXPECT_EQ(launcher.wait(), 7) << launcher.report();
  EXPECT_THAT(launcher.err(), HasSubstr("lockstep run: rank 1 failed first, with exit code 7\n"));
  EXPECT_THAT(launcher.err(), ContainsRegex("where +[^ ]+, pid [0-9]+, local rank 1 of node 0\n"));
  EXPECT_THAT(launcher.err(), HasSubstr("stderr   no space left\n"));
  EXPECT_THAT(launcher.err(), HasSubstr("stopped  by the launcher: rank 0, 2"));
  EXPECT_TRUE(launcher.nothing_left());
}

TEST(LaunchFailure, SignalsAreNamed) {
  Launcher launcher({"sh", "-c", "kill -KILL $$"});
  EXPECT_EQ(launcher.wait(), 128 + SIGKILL);
  EXPECT_THAT(launcher.err(), HasSubstr("rank 0 failed first, with signal 9 (SIGKILL)"));
  EXPECT_THAT(launcher.err(), HasSubstr("memory ran out"));
}

TEST(LaunchFailure, ASegmentationFaultComesWithABacktrace) {
  if (kSanitized) GTEST_SKIP() << "the sanitizer takes the signal";
  Launcher launcher({"--nproc-per-node", "2", rank_program(), "crash", "1"});
  EXPECT_EQ(launcher.wait(), 128 + SIGSEGV) << launcher.report();
  EXPECT_THAT(launcher.err(), HasSubstr("rank 1 failed first, with signal 11 (SIGSEGV)"));
  EXPECT_THAT(launcher.err(), HasSubstr("why      SIGSEGV (Segmentation fault) at address 0x0\n"));
  EXPECT_THAT(launcher.err(), ContainsRegex("#0 +read_from\\(int const\\*\\)\\+0x[0-9a-f]+ in "));
}

TEST(LaunchFailure, AnUncaughtExceptionComesWithItsText) {
  Launcher launcher({rank_program(), "throw"});
  EXPECT_EQ(launcher.wait(), 128 + SIGABRT) << launcher.report();
  EXPECT_THAT(launcher.err(), HasSubstr("why      std::runtime_error: the data set is empty\n"));
  EXPECT_THAT(launcher.err(), ContainsRegex("#0 .*rank"));
}

TEST(LaunchFailure, AnAbortComesWithABacktrace) {
  Launcher launcher({rank_program(), "abort"});
  EXPECT_EQ(launcher.wait(), 128 + SIGABRT) << launcher.report();
  EXPECT_THAT(launcher.err(), HasSubstr("why      SIGABRT (Aborted)\n"));
  EXPECT_THAT(launcher.err(), HasSubstr(" in " + rank_program()));
}

TEST(LaunchFailure, AProgramWithoutLockstepIsExplainedByItsStderr) {
  Launcher launcher({"sh", "-c",
                     "echo \"terminate called after throwing an instance of 'std::logic_error'\" >&2; "
                     "echo '  what():  bad shape' >&2; kill -ABRT $$"});
  EXPECT_EQ(launcher.wait(), 128 + SIGABRT);
  EXPECT_THAT(launcher.err(), HasSubstr("why      std::logic_error: bad shape\n"));
}

TEST(LaunchFailure, TheFirstFailureIsNamedNotItsConsequences) {
  if (kSanitized) GTEST_SKIP() << "the sanitizer takes the signal";
  Launcher launcher({"--nproc-per-node", "4", rank_program(), "peer_crash"});
  EXPECT_EQ(launcher.wait(), 128 + SIGSEGV) << launcher.report();
  EXPECT_THAT(launcher.err(), HasSubstr("rank 2 failed first, with signal 11 (SIGSEGV)"));
  // On a busy machine the others may be stopped before they could report it.
  EXPECT_THAT(launcher.err(), ContainsRegex("then +rank [013] \\(signal 6 \\(SIGABRT\\)\\): lockstep::Error: peer_lost|"
                                            "stopped  by the launcher: rank 0, 1, 3"));
  EXPECT_THAT(launcher.err(), Not(HasSubstr("rank 2 (signal")));
}

TEST(LaunchFailure, AKilledRankIsTheFirstFailure) {
  Launcher launcher({"--nproc-per-node", "3", rank_program(), "peer_kill"});
  EXPECT_EQ(launcher.wait(), 128 + SIGKILL) << launcher.report();
  EXPECT_THAT(launcher.err(), HasSubstr("rank 1 failed first, with signal 9 (SIGKILL)"));
}

TEST(LaunchFailure, ProcessesInARanksGroupEndWithIt) {
  Launcher launcher({"sh", "-c", "sleep 60 & exit 0"});
  EXPECT_EQ(launcher.wait(), 0) << launcher.report();
  EXPECT_TRUE(launcher.nothing_left());
}

}  // namespace
}  // namespace lockstep::testing
