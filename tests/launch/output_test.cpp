// The environment that the launcher gives to its ranks, and the handling of their output.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <sstream>

#include "launch/launcher.h"

namespace lockstep::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::UnorderedElementsAre;

TEST(LaunchOutput, TheEnvironmentDescribesEachRank) {
  Launcher launcher({"--nproc-per-node", "2", "--rdzv-id", "job7", "--max-restarts", "3", "--role", "trainer", "sh",
                     "-c",
                     "echo $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $GROUP_RANK $NODE_RANK $ROLE_NAME "
                     "$TORCHELASTIC_RESTART_COUNT/$TORCHELASTIC_MAX_RESTARTS $TORCHELASTIC_RUN_ID $MASTER_ADDR "
                     "$LOCKSTEP_STORE_IS_SERVED ${#LOCKSTEP_SECRET} \"$@\"",
                     "sh", "--nproc-per-node", "9"});
  EXPECT_EQ(launcher.wait(), 0) << launcher.report();
  EXPECT_THAT(launcher.out_lines(),
              UnorderedElementsAre("[rank 0] 0/2 0/2 0 0 trainer 0/3 job7 127.0.0.1 1 64 --nproc-per-node 9",
                                   "[rank 1] 1/2 1/2 0 0 trainer 0/3 job7 127.0.0.1 1 64 --nproc-per-node 9"));
  EXPECT_EQ(launcher.err(), "");
}

TEST(LaunchOutput, TheUsersThreadsSecretAndOtherVariablesAreKept) {
  Launcher launcher(
      {"sh", "-c", "echo $OMP_NUM_THREADS $LOCKSTEP_SECRET $OWN"},
      {{"OMP_NUM_THREADS", "3"}, {"LOCKSTEP_SECRET", "0123456789abcdef0123456789abcdef"}, {"OWN", "kept"}});
  EXPECT_EQ(launcher.wait(), 0) << launcher.report();
  EXPECT_EQ(launcher.out(), "[rank 0] 3 0123456789abcdef0123456789abcdef kept\n");
}

TEST(LaunchOutput, TheSecretIsNeverOnACommandLine) {
  Launcher launcher({"sh", "-c", "echo $LOCKSTEP_SECRET; sleep 60"});
  ASSERT_TRUE(launcher.wait_for_line("[rank 0] "));
  const std::string secret = launcher.out().substr(9, 64);
  ASSERT_EQ(secret.size(), 64U);
  for (const pid_t pid : launcher.descendants())
    EXPECT_THAT(content_of("/proc/" + std::to_string(pid) + "/cmdline"), Not(HasSubstr(secret)));
  EXPECT_THAT(content_of("/proc/" + std::to_string(launcher.pid()) + "/cmdline"), Not(HasSubstr(secret)));
}

TEST(LaunchOutput, RanksMeetInTheStoreThatTheLauncherServes) {
  Launcher launcher({"--nproc-per-node", "4", rank_program(), "sum"});
  EXPECT_EQ(launcher.wait(), 0) << launcher.report();
  EXPECT_THAT(launcher.out_lines(),
              UnorderedElementsAre("[rank 0] sum 10", "[rank 1] sum 10", "[rank 2] sum 10", "[rank 3] sum 10"));
}

TEST(LaunchOutput, RanksAreBoundToTheirOwnCoresIfThereAreEnough) {
  const std::string show = "grep Cpus_allowed_list /proc/self/status";
  Launcher bound({"--nproc-per-node", "auto", "sh", "-c", show});
  EXPECT_EQ(bound.wait(), 0) << bound.report();
  std::map<std::string, int> sets;
  for (const auto& line : bound.out_lines()) ++sets[line.substr(line.find(':'))];
  for (const auto& [set, ranks] : sets) EXPECT_EQ(ranks, 1) << "cores " << set << " belong to several ranks";

  Launcher unbound({"--nproc-per-node", "2", "--no-bind", "sh", "-c", show});
  EXPECT_EQ(unbound.wait(), 0) << unbound.report();
  const auto lines = unbound.out_lines();
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_EQ(lines[0].substr(8), lines[1].substr(8));
}

TEST(LaunchOutput, LinesAreNeverMixed) {
  Launcher launcher({"--nproc-per-node", "2", rank_program(), "lines"});
  ASSERT_EQ(launcher.wait(), 0) << launcher.err();
  std::map<int, int> next;
  for (const auto& line : launcher.out_lines()) {
    std::istringstream words(line);
    std::string bracket;
    std::string prefix;
    std::string begin;
    std::string filler;
    std::string end;
    int rank = -1;
    int number = -1;
    words >> bracket >> prefix >> begin >> rank >> number >> filler >> end;
    ASSERT_EQ(prefix, std::to_string(rank) + "]") << line;
    ASSERT_EQ(number, next[rank]++) << line;
    ASSERT_EQ(filler, std::string(600, static_cast<char>('a' + rank))) << line;
    ASSERT_EQ(end, "end") << line;
  }
  EXPECT_EQ(next[0], 10'000);
  EXPECT_EQ(next[1], 10'000);
}

TEST(LaunchOutput, TheLastLineNeedsNoEndAndLongLinesAreCut) {
  Launcher launcher({"sh", "-c", "head -c 200000 /dev/zero | tr '\\0' x; printf '\\nlast'"});
  EXPECT_EQ(launcher.wait(), 0) << launcher.err();
  const auto lines = launcher.out_lines();
  ASSERT_EQ(lines.size(), 5U);
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < 4; ++i) bytes += lines[i].size() - std::string("[rank 0] ").size();
  EXPECT_EQ(bytes, 200'000U);
  EXPECT_EQ(lines[4], "[rank 0] last");
}

TEST(LaunchOutput, StdoutAndStderrStayApart) {
  Launcher launcher({"sh", "-c", "echo one; echo two >&2"});
  EXPECT_EQ(launcher.wait(), 0);
  EXPECT_EQ(launcher.out(), "[rank 0] one\n");
  EXPECT_EQ(launcher.err(), "[rank 0] two\n");
}

TEST(LaunchOutput, ThePrefixCanBeOmitted) {
  Launcher launcher({"--no-prefix", "echo", "plain"});
  EXPECT_EQ(launcher.wait(), 0);
  EXPECT_EQ(launcher.out(), "plain\n");
}

TEST(LaunchOutput, RanksMayBeFiltered) {
  Launcher launcher({"--nproc-per-node", "3", "--local-ranks-filter", "0,2", "sh", "-c", "echo here"});
  EXPECT_EQ(launcher.wait(), 0);
  EXPECT_THAT(launcher.out_lines(), UnorderedElementsAre("[rank 0] here", "[rank 2] here"));
}

// Output and exit code of a shell command in which $LAUNCH is `lockstep run`.
std::string run_in_shell(const std::string& command, const Environment& more = {}) {
  Environment environment = {{"LAUNCH", lockstep_program() + " run"}};
  environment.insert(more.begin(), more.end());
  ProcessSet shell = start_program(1, {"sh", "-c", command}, {.environment = environment});
  EXPECT_TRUE(shell.wait_all(in_seconds(60))) << shell.report();
  return shell.output(0);
}

TEST(LaunchOutput, AReaderThatClosesThePipeDoesNotEndTheJob) {
  const TestFolder folder;
  const std::string output =
      run_in_shell("$LAUNCH sh -c 'seq 200000; echo all > " + folder.path("done") + "' | head -1");
  EXPECT_EQ(output, "[rank 0] 1\n");
  EXPECT_EQ(content_of(folder.path("done")), "all\n");
}

TEST(LaunchOutput, RankZeroReadsWhatIsPipedIn) {
  EXPECT_EQ(run_in_shell("echo data | $LAUNCH --nproc-per-node 2 cat"), "[rank 0] data\n");
}

TEST(LaunchOutput, ColoursAreForTerminalsOnly) {
  if (std::system("script --version >/dev/null 2>&1") != 0) GTEST_SKIP() << "script(1) of util-linux is missing";
  EXPECT_EQ(run_in_shell("$LAUNCH echo x"), "[rank 0] x\n");
  const std::string on_terminal = "script -qec \"$LAUNCH echo x\" /dev/null";
  EXPECT_THAT(run_in_shell(on_terminal, {{"TERM", "xterm"}}), HasSubstr("\033[36m[rank 0] \033[0mx"));
  EXPECT_THAT(run_in_shell(on_terminal, {{"TERM", "xterm"}, {"NO_COLOR", "1"}}), HasSubstr("[rank 0] x"));
  EXPECT_THAT(run_in_shell(on_terminal, {{"TERM", "xterm"}, {"NO_COLOR", "1"}}), Not(HasSubstr("\033")));
}

TEST(LaunchOutput, ManyRanksNeedNoHigherLimitAndKeepTheirOwn) {
  const std::string limited =
      run_in_shell("ulimit -S -n 64; $LAUNCH --nproc-per-node 50 sh -c 'ulimit -S -n' | sort | uniq -c");
  EXPECT_EQ(std::count(limited.begin(), limited.end(), '\n'), 50) << limited;
  EXPECT_THAT(limited, HasSubstr("[rank 49] 64\n"));
}

}  // namespace
}  // namespace lockstep::testing
