// lockstep run --trace: a timeline of all ranks, also of one that was killed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <nlohmann/json.hpp>
#include <set>

#include "launch/launcher.h"

namespace lockstep::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

std::vector<json> events(const json& trace, const std::string& kind, const std::string& name) {
  std::vector<json> found;
  for (const json& event : trace["traceEvents"]) {
    if (event["ph"] == kind && event["name"] == name) found.push_back(event);
  }
  return found;
}

TEST(LaunchTrace, HasTheCollectivesOfAllRanksAndArrowsBetweenThem) {
  const TestFolder folder;
  Launcher launcher({"--nproc-per-node", "3", "--trace", folder.path("trace.json"), rank_program(), "sum"});
  ASSERT_EQ(launcher.wait(), 0) << launcher.report();
  const json trace = json::parse(content_of(folder.path("trace.json")));
  EXPECT_EQ(events(trace, "M", "process_name").size(), 3U);
  const auto operations = events(trace, "X", "all_reduce");
  ASSERT_EQ(operations.size(), 3U);
  std::set<int> ranks;
  for (const json& operation : operations) {
    ranks.insert(operation["pid"].get<int>());
    EXPECT_EQ(operation["args"]["sequence"], operations[0]["args"]["sequence"]);
    EXPECT_EQ(operation["args"]["bytes"], 16);
    EXPECT_EQ(operation["args"]["outcome"], "done");
  }
  EXPECT_EQ(ranks, (std::set<int>{0, 1, 2}));
  EXPECT_GE(events(trace, "s", "last arrival").size(), 2U);
  EXPECT_EQ(events(trace, "s", "last arrival").size(), events(trace, "f", "last arrival").size());
}

TEST(LaunchTrace, ShowsWhatAKilledRankDidAndHowTheOthersNoticed) {
  const TestFolder folder;
  Launcher launcher({"--nproc-per-node", "3", "--trace", folder.path("trace.json"), rank_program(), "peer_kill"});
  EXPECT_EQ(launcher.wait(), 128 + SIGKILL) << launcher.report();
  const json trace = json::parse(content_of(folder.path("trace.json")));
  int of_killed = 0;
  for (const json& operation : events(trace, "X", "all_reduce")) of_killed += operation["pid"] == 1;
  EXPECT_EQ(of_killed, 10) << "it killed itself before the eleventh";
  bool killed = false;
  for (const json& end : events(trace, "i", "end")) {
    killed |= end["pid"] == 1 && end["args"]["text"].get<std::string>().find("SIGKILL") != std::string::npos;
  }
  EXPECT_TRUE(killed);
  const auto failures = events(trace, "i", "failure");
  ASSERT_FALSE(failures.empty());
  EXPECT_THAT(failures[0]["args"]["text"].get<std::string>(), HasSubstr("rank 1"));
}

// Runs `lockstep` with these arguments until its output contains `text`, or 20 s have passed; returns the output.
std::string output_with(const std::vector<std::string>& arguments, const std::string& text) {
  std::vector<std::string> command = {lockstep_program()};
  command.insert(command.end(), arguments.begin(), arguments.end());
  std::string output;
  for (const Deadline deadline = in_seconds(20); !deadline.expired();) {
    ProcessSet process = start_program(1, command);
    if (!process.wait_all(in_seconds(20))) break;
    output = process.output(0) + process.error_output(0);
    if (output.find(text) != std::string::npos) break;
  }
  return output;
}

TEST(RunningJob, PsDumpAndTraceShowWhatItsRanksDo) {
  const TestFolder folder;
  Launcher launcher({"--nproc-per-node", "3", rank_program(), "late"});
  ASSERT_TRUE(launcher.wait_for_line("loading")) << launcher.report();
  const std::string pid = std::to_string(launcher.pid());
  EXPECT_THAT(output_with({"ps"}, pid), HasSubstr(rank_program() + " late"));
  const std::string dump = output_with({"dump", pid}, "waits for rank 2");
  EXPECT_THAT(dump, HasSubstr("of 'world' waits for rank 2\n"));
  EXPECT_THAT(dump, ::testing::ContainsRegex("rank 2 .[^)]*.: data loading for [0-9.]+ s\n"));
  EXPECT_THAT(dump, ::testing::ContainsRegex("rank 0 .*all_reduce #[0-9]+ of 'world' has run for [0-9.]+ s"));
  EXPECT_EQ(output_with({"trace", pid, "--last", "60s", "--output", folder.path("trace.json")}, ""), "");
  const json trace = json::parse(content_of(folder.path("trace.json")));
  EXPECT_EQ(events(trace, "X", "all_reduce").size(), 5U);
  EXPECT_THAT(output_with({"dump", "1"}, "1"), HasSubstr("there is no job 1: "));
}

TEST(LaunchTrace, AFileThatCannotBeWrittenIsAUsageError) {
  Launcher launcher({"--trace", "/proc/none/trace.json", rank_program(), "sum"});
  EXPECT_EQ(launcher.wait(), 2) << launcher.report();
  EXPECT_THAT(launcher.err(), HasSubstr("--trace: the file '/proc/none/trace.json' cannot be written"));
}

}  // namespace
}  // namespace lockstep::testing
