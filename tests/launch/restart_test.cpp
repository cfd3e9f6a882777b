// Restarts after a failure, on one node.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

#include "launch/launcher.h"

namespace lockstep::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::UnorderedElementsAre;

TEST(LaunchRestart, AllRanksRestartAfterAFailure) {
  Launcher launcher({"--nproc-per-node", "2", "--max-restarts", "3", "sh", "-c",
                     "echo attempt $TORCHELASTIC_RESTART_COUNT of $TORCHELASTIC_MAX_RESTARTS; "
                     "[ $TORCHELASTIC_RESTART_COUNT = 1 ] && exit 0; [ $RANK = 1 ] && exit 5; sleep 60"});
  EXPECT_EQ(launcher.wait(), 0) << launcher.report();
  EXPECT_THAT(launcher.out_lines(), UnorderedElementsAre("[rank 0] attempt 0 of 3", "[rank 1] attempt 0 of 3",
                                                         "[rank 0] attempt 1 of 3", "[rank 1] attempt 1 of 3"));
  EXPECT_THAT(launcher.err(), HasSubstr("rank 1 failed first, with exit code 5"));
  EXPECT_THAT(launcher.err(), HasSubstr("all ranks restart (restart 1 of 3)"));
}

TEST(LaunchRestart, RanksMeetAgainInANewStore) {
  Launcher launcher({"--nproc-per-node", "2", "--max-restarts", "1", "sh", "-c",
                     "if [ $TORCHELASTIC_RESTART_COUNT = 0 ]; then [ $RANK = 0 ] && exit 5; fi; exec \"$0\" sum",
                     rank_program()});
  EXPECT_EQ(launcher.wait(), 0) << launcher.report();
  EXPECT_THAT(launcher.out_lines(), UnorderedElementsAre("[rank 0] sum 3", "[rank 1] sum 3"));
}

TEST(LaunchRestart, EachAttemptHasItsOwnLogs) {
  const TestFolder folder;
  Launcher launcher({"--max-restarts", "1", "--log-dir", folder.path(), "--rdzv-id", "job", "sh", "-c",
                     "echo attempt $TORCHELASTIC_RESTART_COUNT; exit 4"});
  EXPECT_EQ(launcher.wait(), 4);
  EXPECT_EQ(content_of(folder.path("job/attempt_0/0/stdout.log")), "attempt 0\n");
  EXPECT_EQ(content_of(folder.path("job/attempt_1/0/stdout.log")), "attempt 1\n");
  EXPECT_THAT(launcher.err(), HasSubstr("all 1 restarts are used up"));
}

TEST(LaunchRestart, ARankThatRepeatedlyDiesAtOnceEndsTheJobEarly) {
  Launcher launcher(
      {"--nproc-per-node", "2", "--max-restarts", "100", "sh", "-c", "[ $RANK = 1 ] && exit 6; sleep 60"});
  EXPECT_EQ(launcher.wait(), 6) << launcher.report();
  EXPECT_THAT(launcher.err(), HasSubstr("rank 1 died within 5 s of its start 3 times in a row"));
  EXPECT_THAT(launcher.err(), HasSubstr("restart 2 of 100"));
  EXPECT_THAT(launcher.err(), Not(HasSubstr("restart 3 of 100")));
}

TEST(LaunchRestart, AnInterruptDuringTheBackOffEndsTheJob) {
  Launcher launcher({"--max-restarts", "100", "sh", "-c", "exit 6"});
  ASSERT_TRUE(launcher.wait_for_line("restart in 0.5 s")) << launcher.report();
  launcher.kill(SIGINT);
  EXPECT_EQ(launcher.wait(), 130) << launcher.report();
}

}  // namespace
}  // namespace lockstep::testing
