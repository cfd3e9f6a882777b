// `lockstep top` and `lockstep dump` on jobs whose ranks wait for one of them, and what the launcher writes by itself.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "launch/launcher.h"

namespace lockstep::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string output_of(const std::vector<std::string>& arguments, int expected = 0) {
  std::vector<std::string> command = {lockstep_program()};
  command.insert(command.end(), arguments.begin(), arguments.end());
  ProcessSet process = start_program(1, command);
  const auto end = process.wait(0, in_seconds(60));
  EXPECT_TRUE(end && end->code == expected) << process.report();
  return process.output(0) + process.error_output(0);
}

// Until it contains `text`: the ranks get there one after the other.
std::string output_with(const std::vector<std::string>& arguments, const std::string& text) {
  std::string output;
  for (const Deadline deadline = in_seconds(30); !deadline.expired();) {
    output = output_of(arguments);
    if (output.find(text) != std::string::npos) break;
  }
  return output;
}

char state_of(const std::string& pid) {
  std::ifstream file("/proc/" + pid + "/stat");
  std::string line;
  std::getline(file, line);
  const std::size_t end = line.rfind(')');
  return end == std::string::npos ? '\0' : line[end + 2];
}

TEST(RunningJob, TopPrintsOnePictureIfItsOutputIsNoTerminal) {
  Launcher launcher({"--nproc-per-node", "3", rank_program(), "late"});
  ASSERT_TRUE(launcher.wait_for_line("loading")) << launcher.report();
  const std::string picture = output_with({"top", std::to_string(launcher.pid())}, "waits for rank 2");
  EXPECT_THAT(picture, HasSubstr("waiting for"));
  EXPECT_THAT(picture, HasSubstr("of 'world' waits for rank 2"));
  EXPECT_THAT(picture, HasSubstr("data loading"));
  EXPECT_THAT(picture, HasSubstr("GiB"));
  EXPECT_THAT(output_of({"top", "1"}, 2), HasSubstr("there is no job 1"));
  const std::string jobs = output_of({"ps"});
  EXPECT_THAT(jobs, HasSubstr(fmt::format(" {}    3 ranks ", launcher.pid())));
  for (const pid_t pid : launcher.descendants())
    EXPECT_THAT(jobs, Not(HasSubstr(fmt::format(" {} ", pid)))) << "not a job";
}

TEST(RunningJob, DumpHasThreadsAndStacksOfEachRankFirstOfTheOneThatIsWaitedFor) {
  Launcher launcher({"--nproc-per-node", "3", rank_program(), "late"});
  ASSERT_TRUE(launcher.wait_for_line("loading")) << launcher.report();
  const std::string job = std::to_string(launcher.pid());
  output_with({"dump", "--no-stacks", job}, "waits for rank 2");
  const std::string dump = output_of({"dump", "--limit", "20", job});
  const std::size_t threads = dump.find("\n    thread ");
  ASSERT_NE(threads, std::string::npos) << dump;
  const std::size_t before = dump.rfind("\nrank ", threads);
  EXPECT_EQ(dump.substr(before + 1, 6), "rank 2") << dump;
  if (dump.find("no stacks:") == std::string::npos) {
    EXPECT_THAT(dump, HasSubstr("pause")) << "rank 2 waits there";
    EXPECT_THAT(dump, HasSubstr("main"));
  }
  for (const pid_t pid : launcher.descendants()) EXPECT_NE(state_of(std::to_string(pid)), 'T') << pid;
}

TEST(LaunchStall, ALongWaitIsWrittenToAFileOnce) {
  const TestFolder folder;
  Launcher launcher({"--nproc-per-node", "3", "--log-dir", folder.path(), rank_program(), "late"},
                    {{"LOCKSTEP_STALL_SECONDS", "1"}});
  ASSERT_TRUE(launcher.wait_for_line("and waits for rank 2; rank 2 (")) << launcher.report();
  ASSERT_TRUE(launcher.wait_for_line("the stacks of its ranks are in ", 60)) << launcher.report();
  const std::string error = launcher.err();
  const std::size_t begin = error.find("are in ") + 7;
  const std::string path = error.substr(begin, error.find('\n', begin) - begin);
  const std::string text = content_of(path);
  EXPECT_THAT(text, HasSubstr("of 'world' has run for"));
  const std::size_t first = text.find("\nrank ");
  ASSERT_NE(first, std::string::npos) << text;
  EXPECT_EQ(text.substr(first + 1, 6), "rank 2") << text;
  EXPECT_THAT(text, HasSubstr("thread "));
  EXPECT_EQ(std::filesystem::status(path).permissions() & std::filesystem::perms::all,
            std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
  for (const pid_t pid : launcher.descendants()) EXPECT_NE(state_of(std::to_string(pid)), 'T') << pid;
}

TEST(LaunchStall, NothingIsWrittenIfItIsTurnedOff) {
  Launcher launcher({"--nproc-per-node", "3", rank_program(), "late"}, {{"LOCKSTEP_STALL_SECONDS", "0"}});
  ASSERT_TRUE(launcher.wait_for_line("loading")) << launcher.report();
  output_with({"top", std::to_string(launcher.pid())}, "waiting for 3");
  EXPECT_THAT(launcher.err(), Not(HasSubstr("waits for rank 2; rank 2 (")));
}

}  // namespace
}  // namespace lockstep::testing
