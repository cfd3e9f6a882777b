// --log-dir, --redirects and --tee.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "launch/launcher.h"

namespace lockstep::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

const std::vector<std::string> kProgram = {"sh", "-c", "echo out $RANK; printf 'err %s' $RANK >&2"};

std::vector<std::string> with_program(std::vector<std::string> options) {
  options.insert(options.end(), kProgram.begin(), kProgram.end());
  return options;
}

TEST(LaunchLogs, ALogFolderKeepsEverythingAndTheTerminalShowsIt) {
  const TestFolder folder;
  Launcher launcher(with_program({"--nproc-per-node", "2", "--log-dir", folder.path("a/b"), "--rdzv-id", "job"}));
  EXPECT_EQ(launcher.wait(), 0) << launcher.report();
  EXPECT_THAT(launcher.out_lines(), UnorderedElementsAre("[rank 0] out 0", "[rank 1] out 1"));
  EXPECT_EQ(content_of(folder.path("a/b/job/attempt_0/0/stdout.log")), "out 0\n");
  EXPECT_EQ(content_of(folder.path("a/b/job/attempt_0/0/stderr.log")), "err 0");
  EXPECT_EQ(content_of(folder.path("a/b/job/attempt_0/1/stdout.log")), "out 1\n");
}

TEST(LaunchLogs, RedirectedStreamsGoToFilesOnly) {
  const TestFolder folder;
  Launcher launcher(with_program(
      {"--nproc-per-node", "2", "--log-dir", folder.path(), "--rdzv-id", "job", "--redirects", "0:3,1:1"}));
  EXPECT_EQ(launcher.wait(), 0) << launcher.report();
  EXPECT_EQ(launcher.out(), "");
  EXPECT_EQ(launcher.err(), "[rank 1] err 1\n");
  EXPECT_EQ(content_of(folder.path("job/attempt_0/0/stdout.log")), "out 0\n");
  EXPECT_EQ(content_of(folder.path("job/attempt_0/0/stderr.log")), "err 0");
  EXPECT_EQ(content_of(folder.path("job/attempt_0/1/stdout.log")), "out 1\n");
}

TEST(LaunchLogs, TeeWritesToBoth) {
  const TestFolder folder;
  Launcher launcher(with_program({"--log-dir", folder.path(), "--rdzv-id", "job", "--redirects", "3", "--tee", "1"}));
  EXPECT_EQ(launcher.wait(), 0) << launcher.report();
  EXPECT_EQ(launcher.out(), "[rank 0] out 0\n");
  EXPECT_EQ(launcher.err(), "");
  EXPECT_EQ(content_of(folder.path("job/attempt_0/0/stdout.log")), "out 0\n");
  EXPECT_EQ(content_of(folder.path("job/attempt_0/0/stderr.log")), "err 0");
}

TEST(LaunchLogs, AnEarlierRunsFilesAreNotOverwritten) {
  const TestFolder folder;
  for (int run = 0; run < 2; ++run) {
    Launcher launcher(with_program({"--log-dir", folder.path(), "--rdzv-id", "job"}));
    EXPECT_EQ(launcher.wait(), 0) << launcher.report();
  }
  EXPECT_EQ(content_of(folder.path("job/attempt_0/0/stdout.log")), "out 0\nout 0\n");
}

TEST(LaunchLogs, TheReportShowsTheEndOfARedirectedStderr) {
  const TestFolder folder;
  Launcher launcher(
      {"--log-dir", folder.path(), "--rdzv-id", "job", "--redirects", "3", "sh", "-c", "seq 100 >&2; exit 3"});
  EXPECT_EQ(launcher.wait(), 3);
  EXPECT_THAT(launcher.err(), HasSubstr("  stderr   81\n"));
  EXPECT_THAT(launcher.err(), HasSubstr(" 100\n"));
  EXPECT_THAT(launcher.err(), HasSubstr(folder.path("job/attempt_0/0")));
}

}  // namespace
}  // namespace lockstep::testing
