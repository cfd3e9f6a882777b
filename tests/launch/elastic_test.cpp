// Elastic jobs: a rank that dies is replaced while the others continue.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

#include "launch/launcher.h"

namespace lockstep::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// Prints its rank and pid, then runs `body`.
std::string script(const std::string& body) {
  return "echo rank $RANK pid $$ newcomer ${LOCKSTEP_NEWCOMER:-0} restart $TORCHELASTIC_RESTART_COUNT; " + body;
}

pid_t pid_of(const Launcher& launcher, int rank, const std::string& newcomer) {
  const std::string start = "rank " + std::to_string(rank) + " pid ";
  for (const auto& line : launcher.out_lines()) {
    const std::size_t found = line.find(start);
    if (found != std::string::npos && line.find("newcomer " + newcomer) != std::string::npos)
      return std::stoi(line.substr(found + start.size()));
  }
  return -1;
}

TEST(LaunchElastic, ADeadRankIsReplacedWhileTheOthersContinue) {
  const TestFolder folder;
  const std::string done = folder.path("done");
  Launcher launcher({"--elastic", "--nproc-per-node", "3", "--min-ranks", "2", "--log-dir", folder.path("logs"),
                     "--rdzv-id", "job", "sh", "-c",
                     script("echo $LOCKSTEP_ELASTIC $LOCKSTEP_MIN_RANKS $LOCKSTEP_MAX_RANKS; while [ ! -e " + done +
                            " ]; do sleep 0.02; done")});
  for (int rank = 0; rank < 3; ++rank)
    ASSERT_TRUE(launcher.wait_for_line("[worker " + std::to_string(rank) + "] 1 2 3")) << launcher.report();
  const pid_t survivor = pid_of(launcher, 0, "0");
  ::kill(pid_of(launcher, 1, "0"), SIGKILL);
  ASSERT_TRUE(launcher.wait_for_line("newcomer 1 restart 1")) << launcher.report();
  EXPECT_GT(pid_of(launcher, 1, "1"), 0);
  EXPECT_EQ(::kill(survivor, 0), 0) << "the survivors were not stopped";
  ProcessSet touch = start_program(1, {"touch", done});
  EXPECT_EQ(launcher.wait(), 0) << launcher.report();
  EXPECT_THAT(launcher.err(), HasSubstr("ended with signal 9 (SIGKILL)"));
  EXPECT_THAT(launcher.err(), HasSubstr("a replacement starts at once (restart 1 of 10); the others continue"));
  EXPECT_THAT(content_of(folder.path("logs/job/attempt_1/1/stdout.log")), HasSubstr("newcomer 1"));
}

TEST(LaunchElastic, NoRankIsReplacedOnceOneHasFinished) {
  Launcher launcher(
      {"--elastic", "--nproc-per-node", "2", "sh", "-c", script("[ $RANK = 0 ] && exit 0; sleep 0.3; kill -KILL $$")});
  EXPECT_EQ(launcher.wait(), 137) << launcher.report();
  EXPECT_THAT(launcher.out(), Not(HasSubstr("newcomer 1")));
}

TEST(LaunchElastic, ASurvivedLossDoesNotMakeTheJobFail) {
  Launcher launcher({"--elastic", "--max-restarts", "0", "--nproc-per-node", "2", "sh", "-c",
                     script("[ $RANK = 0 ] && kill -KILL $$; sleep 0.5; exit 0")});
  EXPECT_EQ(launcher.wait(), 0) << launcher.report();
  EXPECT_THAT(launcher.err(), HasSubstr("no restarts are allowed"));
}

TEST(LaunchElastic, ARankThatRepeatedlyDiesAtOnceIsNoLongerReplaced) {
  Launcher launcher({"--elastic", "--nproc-per-node", "2", "sh", "-c", script("[ $RANK = 1 ] && exit 3; sleep 4")});
  EXPECT_EQ(launcher.wait(), 0) << launcher.report();
  EXPECT_THAT(launcher.err(), HasSubstr("a replacement starts at once (restart 1 of 10)"));
  EXPECT_THAT(launcher.err(), HasSubstr("a replacement starts in 0.5 s (restart 2 of 10)"));
  EXPECT_THAT(launcher.err(), HasSubstr("worker 1 died within 5 s of its start 3 times in a row"));
}

TEST(LaunchElastic, TheJobFailsWhenNoRankIsLeft) {
  Launcher launcher({"--elastic", "--max-restarts", "1", "--nproc-per-node", "2", "sh", "-c", script("exit 9")});
  EXPECT_EQ(launcher.wait(), 9) << launcher.report();
  EXPECT_THAT(launcher.err(), HasSubstr("failed first, with exit code 9"));
}

TEST(LaunchElastic, AnInterruptEndsAllRanksAndReplacesNone) {
  Launcher launcher({"--elastic", "--nproc-per-node", "2", rank_program(), "wait"});
  ASSERT_TRUE(launcher.wait_for_line("ready 0") && launcher.wait_for_line("ready 1"));
  launcher.kill(SIGINT);
  EXPECT_EQ(launcher.wait(), 130) << launcher.report();
  EXPECT_TRUE(launcher.nothing_left());
  EXPECT_THAT(launcher.err(), Not(HasSubstr("replacement")));
}

TEST(LaunchElastic, TheRosterIsInAPrivateFolderThatIsRemoved) {
  Launcher launcher({"--elastic", "sh", "-c", "stat -c %a $(dirname $LOCKSTEP_ROSTER); printf x > $LOCKSTEP_ROSTER.1"});
  EXPECT_EQ(launcher.wait(), 0) << launcher.report();
  EXPECT_EQ(launcher.out(), "[worker 0] 700\n");
  EXPECT_THAT(launcher.folders_left(), ::testing::IsEmpty());
}

}  // namespace
}  // namespace lockstep::testing
