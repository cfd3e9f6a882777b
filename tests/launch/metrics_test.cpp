// lockstep run --metrics: the curves of all ranks, also of one that was killed, and of steps that were repeated.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "launch/launcher.h"

namespace lockstep::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

std::vector<json> lines(const std::string& text) {
  std::vector<json> parsed;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) parsed.push_back(json::parse(line));
  return parsed;
}

std::string event_file_in(const std::string& folder) {
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().filename().string().starts_with("events.out.tfevents.")) return entry.path();
  }
  return "none";
}

// The mean of each step of train/loss, the last one if there are several.
using Curve = std::map<std::int64_t, double>;
const Curve& expected_curve() {
  static const Curve curve = [] {
    Curve means;
    for (int step = 1; step <= 8; ++step) means[step] = 1.0 / step + 0.5;
    return means;
  }();
  return curve;
}

void expect_curve(const Curve& curve) {
  ASSERT_EQ(curve.size(), expected_curve().size());
  for (const auto& [step, mean] : expected_curve()) EXPECT_NEAR(curve.at(step), mean, 1e-6) << "step " << step;
}

// Rank 1 is killed in step 6; both restart, and repeat the steps from 4 on.
TEST(LaunchMetrics, AreComplete) {
  const TestFolder folder;
  Launcher launcher(
      {"--nproc-per-node", "2", "--max-restarts", "1", "--metrics", folder.path("run"), rank_program(), "metrics"});
  ASSERT_EQ(launcher.wait(), 0) << launcher.report();

  Curve curve;
  bool killed_in_six = false;
  for (const json& line : lines(content_of(folder.path("run/metrics.jsonl")))) {
    if (line["name"] != "train/loss") continue;
    curve[line["step"].get<std::int64_t>()] = line["mean"].get<double>();
    killed_in_six |= line["step"] == 6 && line["generation"] == 0 && line["values"] == 2;
    if (line["values"] == 2) {
      EXPECT_NEAR(line["max"].get<double>() - line["min"].get<double>(), 1, 1e-9) << line;
    }
  }
  expect_curve(curve);
  EXPECT_TRUE(killed_in_six) << "what it logged before it was killed is missing";
  const std::string csv = content_of(folder.path("run/metrics.csv"));
  EXPECT_THAT(csv, HasSubstr("time,step,generation,name,mean,min,max,values\n"));
  EXPECT_THAT(csv, HasSubstr(",2,0,train/loss,1,0.5,1.5,2\n"));
  EXPECT_THAT(csv, HasSubstr(",8,1,rate,0.5,0.5,0.5,1\n"));
}

// The reader checks all checksums, and that protobuf encodes the same events as the same bytes.
TEST(LaunchMetrics, TensorBoardReadsThem) {
  const TestFolder folder;
  Launcher launcher({"--nproc-per-node", "2", "--max-restarts", "1", rank_program(), "metrics"},
                    {{"LOCKSTEP_METRICS", folder.path("run")}});
  ASSERT_EQ(launcher.wait(), 0) << launcher.report();
  // Not another python3 in PATH, which would not find Debian's packages.
  ProcessSet reader =
      start_program(1, {"/usr/bin/python3", test_script("read_events.py"), event_file_in(folder.path("run"))});
  ASSERT_TRUE(reader.wait_all(in_seconds(20)));
  if (reader.exit_status(0)->code == 77) GTEST_SKIP() << reader.output(0);
  ASSERT_TRUE(reader.all_succeeded()) << reader.report();

  const auto events = lines(reader.output(0));
  ASSERT_FALSE(events.empty());
  EXPECT_EQ(events[0]["version"], "brain.Event:2");
  Curve curve;
  int restarts = 0;
  for (const json& event : events) {
    if (event["restart"] == true) {
      ++restarts;
      EXPECT_EQ(event["step"], 4);
      // What TensorBoard does.
      curve.erase(curve.lower_bound(event["step"].get<std::int64_t>()), curve.end());
    }
    const json& scalars = event["scalars"];
    if (!scalars.contains("train/loss")) continue;
    const auto step = event["step"].get<std::int64_t>();
    EXPECT_TRUE(curve.emplace(step, scalars["train/loss"].get<double>()).second) << "step " << step << " twice";
  }
  EXPECT_EQ(restarts, 1);
  expect_curve(curve);
}

TEST(LaunchMetrics, AFolderThatCannotBeWrittenIsAUsageError) {
  Launcher launcher({"--metrics", "/proc/none", rank_program(), "metrics"});
  EXPECT_EQ(launcher.wait(), 2) << launcher.report();
  EXPECT_THAT(launcher.err(), HasSubstr("--metrics: metrics cannot be written to '/proc/none'"));
}

TEST(LaunchLog, IsJsonIfWanted) {
  Launcher launcher({"--nproc-per-node", "2", rank_program(), "throw"}, {{"LOCKSTEP_LOG_FORMAT", "json"}});
  EXPECT_EQ(launcher.wait(), 128 + SIGABRT) << launcher.report();
  std::istringstream stream(launcher.err());
  bool reported = false;
  for (std::string line; std::getline(stream, line);) {
    if (line.starts_with("[rank")) continue;  // what the program itself prints
    const json message = json::parse(line);
    reported |= message["level"] == "error" && message["program"] == "lockstep run" &&
                message["message"].get<std::string>().find("the data set is empty") != std::string::npos;
    EXPECT_EQ(message["pid"], launcher.pid());
    EXPECT_FALSE(message["host"].get<std::string>().empty());
  }
  EXPECT_TRUE(reported) << launcher.err();
}

}  // namespace
}  // namespace lockstep::testing
