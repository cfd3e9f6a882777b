// `lockstep bench` as a user runs it: it works, reports what it measured, and leaves nothing behind.
// No test here depends on how fast anything is.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "bench/driver/network.h"
#include "bench/driver/process.h"
#include "lockstep/base/deadline.h"

namespace lockstep::bench {
namespace {

using ::testing::HasSubstr;

std::string read_all(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// The benchmark with a folder of its own for temporary files, which must be empty afterwards.
class BenchSmoke : public ::testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directory(scratch()); }
  std::string scratch() const { return folder_.path() + "/t"; }
  std::string json_path() const { return folder_.path() + "/rows.json"; }

  std::vector<std::string> command(std::vector<std::string> arguments) const {
    std::vector<std::string> all = {"env", "TMPDIR=" + scratch(), LOCKSTEP_PROGRAM, "bench"};
    all.insert(all.end(), arguments.begin(), arguments.end());
    return all;
  }

  nlohmann::json rows_of(std::vector<std::string> arguments) const {
    arguments.insert(arguments.end(), {"--json", json_path()});
    const CommandResult result = run_command(command(arguments));
    EXPECT_EQ(result.exit_code, 0) << result.output;
    EXPECT_TRUE(std::filesystem::is_empty(scratch()));
    return nlohmann::json::parse(read_all(json_path()), nullptr, false);
  }

  static void expect_correct(const nlohmann::json& rows) {
    ASSERT_TRUE(rows.is_array());
    ASSERT_FALSE(rows.empty());
    for (const auto& row : rows) {
      EXPECT_EQ(row.at("wrong"), 0) << row;
      EXPECT_GT(row.at("p50_us"), 0.0) << row;
      EXPECT_GE(row.at("p99_us"), row.at("p50_us")) << row;
    }
  }

  static std::set<std::string> engines_of(const nlohmann::json& rows) {
    std::set<std::string> names;
    for (const auto& row : rows)
      names.insert(row.at("engine").get<std::string>() + " " + row.at("memory").get<std::string>());
    return names;
  }

  TemporaryFolder folder_;
};

TEST_F(BenchSmoke, ScaleNamesTheKilledRankOnOneHostAndOnSeveral) {
  for (const char* per_host : {"0", "2"}) {
    const CommandResult result = run_command(
        command({"scale", "--min-ranks", "4", "--max-ranks", "8", "--ranks-per-host", per_host, "--idle", "0"}));
    EXPECT_EQ(result.exit_code, 0) << result.output;
    EXPECT_THAT(result.output, HasSubstr("| 4 |"));
    EXPECT_THAT(result.output, HasSubstr("7 of 7 |")) << "all ranks but the killed one name it";
    EXPECT_TRUE(std::filesystem::is_empty(scratch()));
  }
}

TEST_F(BenchSmoke, AllReduceMeasuresLockstepAndTheLimit) {
  const auto rows = rows_of({"all_reduce", "--bytes", "8:64K", "--rounds", "2", "--nproc", "2"});
  expect_correct(rows);
  EXPECT_THAT(engines_of(rows), ::testing::IsSupersetOf({"lockstep registered", "lockstep private", "limit shared"}));
  std::set<std::size_t> sizes;
  for (const auto& row : rows) sizes.insert(row.at("bytes").get<std::size_t>());
  EXPECT_THAT(sizes, ::testing::ElementsAre(8, 32, 128, 512, 2048, 8192, 32768, 65536));
}

TEST_F(BenchSmoke, PeersAreMeasuredOrReportedAsMissing) {
  const std::vector<std::string> arguments = {"all_reduce",   "--bytes", "4K",     "--rounds", "1",
                                              "--iterations", "5",       "--peer", "gloo",     "--peer",
                                              "openmpi",      "--peer",  "mpich"};
  const std::string output = run_command(command(arguments)).output;
  const auto rows = rows_of(arguments);
  expect_correct(rows);
  for (const std::string peer : {"gloo", "openmpi", "mpich"}) {
    const bool measured = engines_of(rows).contains(peer + " private");
    EXPECT_TRUE(measured || output.find(peer + " is missing") != std::string::npos) << output;
    if (measured) {
      EXPECT_GT(rows.at(0).at("ratio").at(peer), 0.0);
    }
  }
}

TEST_F(BenchSmoke, EveryCollectiveIsCorrectOnThreeRanks) {
  for (const char* collective : {"all_reduce", "broadcast", "all_gather", "reduce_scatter", "barrier"}) {
    SCOPED_TRACE(collective);
    expect_correct(rows_of({collective, "--bytes", "8:64K", "--step", "64", "--nproc", "3", "--rounds", "1",
                            "--iterations", "3", "--peer", "gloo", "--peer", "mpich"}));
  }
}

#ifdef LOCKSTEP_WITH_DDP
TEST_F(BenchSmoke, DdpMeasuresAStepWithAndWithoutSynchronisation) {
  const auto rows =
      rows_of({"ddp", "--model", "cnn", "--batch", "4", "--rounds", "1", "--steps", "1", "--optimizer", "adamw"});
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].at("engine"), "plain");
  EXPECT_EQ(rows[1].at("engine"), "lockstep");
  EXPECT_GT(rows[1].at("forward_backward_ms"), 0.0);
  EXPECT_GE(rows[1].at("step_ms"), rows[1].at("forward_backward_ms"));
  EXPECT_EQ(rows[1].at("optimizer"), "adamw");
  EXPECT_GT(rows[1].at("optimizer_ms"), 0.0);
  EXPECT_EQ(run_command(command({"ddp", "--optimizer", "lbfgs"})).exit_code, 2);
  EXPECT_EQ(run_command(command({"ddp", "--model", "transformer"})).exit_code, 2);
}

TEST_F(BenchSmoke, DdpRunsOnEveryBackendOrReportsItAsMissing) {
  const std::vector<std::string> arguments = {
      "ddp",      "--model",   "cnn",  "--batch",   "2",       "--rounds",  "1",     "--steps", "1",        "--backend",
      "lockstep", "--backend", "gloo", "--backend", "openmpi", "--backend", "mpich", "--json",  json_path()};
  const CommandResult result = run_command(command(arguments));
  ASSERT_EQ(result.exit_code, 0) << result.output;
  const auto rows = nlohmann::json::parse(read_all(json_path()), nullptr, false);
  std::set<std::string> engines;
  for (const auto& row : rows) {
    if (!row.contains("missing")) engines.insert(row.at("engine").get<std::string>());
  }
  EXPECT_TRUE(engines.contains("lockstep")) << result.output;
  for (const std::string backend : {"gloo", "openmpi", "mpich"}) {
    const bool measured = engines.contains(backend);
    EXPECT_TRUE(measured || result.output.find(backend + " is missing") != std::string::npos) << result.output;
    if (measured) {
      EXPECT_GT(rows.at(1).at("ratio").at(backend), 0.0);
    }
  }
  EXPECT_TRUE(std::filesystem::is_empty(scratch()));
  EXPECT_THAT(run_command({"ps", "-e", "-o", "args"}).output, ::testing::Not(HasSubstr(scratch())));
}

void expect_aftermath(const nlohmann::json& row, bool replaced) {
  SCOPED_TRACE(row.dump());
  EXPECT_GT(row.at("step_s").at("median"), 0.0);
  EXPECT_GT(row.at("next_step_s").at("median"), 0.0);
  ASSERT_EQ(row.at("replacement_trains_s").is_object(), replaced);
  if (!replaced) return;
  EXPECT_GT(row.at("replacement_start_up_s").at("median"), 0.0);
  EXPECT_GT(row.at("replacement_trains_s").at("median"), row.at("replacement_start_up_s").at("median"));
}

TEST_F(BenchSmoke, ElasticMeasuresWhatFollowsAKillAndTheCostOfCommit) {
  const auto rows = rows_of({"elastic", "--model", "small_mlp", "--nproc", "3", "--rounds", "1", "--commit-batch", "8",
                             "--commit-steps", "3"});
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[0].at("case"), "rank");
  EXPECT_EQ(rows[1].at("case"), "leader");
  for (const std::size_t i : {0, 1}) expect_aftermath(rows[i], /*replaced=*/true);
  EXPECT_EQ(rows[2].at("case"), "commit");
  EXPECT_GT(rows[2].at("commit_ms").at("median"), 0.0);
  EXPECT_GT(rows[2].at("step_ms").at("median"), 0.0);
  EXPECT_THAT(run_command({"ps", "-e", "-o", "args"}).output, ::testing::Not(HasSubstr(scratch())));
}

TEST_F(BenchSmoke, ElasticRejectsInvalidOptions) {
  EXPECT_EQ(run_command(command({"elastic", "--nproc", "1"})).exit_code, 2);
  EXPECT_EQ(run_command(command({"elastic", "--rate", "1gbit"})).exit_code, 2);
  EXPECT_EQ(run_command(command({"elastic", "--peer", "mpich"})).exit_code, 2);
  EXPECT_THAT(run_command(command({"elastic", "--case", "flood"})).output,
              HasSubstr("with these options the cases are commit, rank, leader"));
}

TEST_F(BenchSmoke, ElasticMeasuresTorchrunOrReportsItAsMissing) {
  const CommandResult probe = run_command(command({"elastic", "--case", "flood", "--peer", "torch"}));
  if (probe.output.find("torch is missing") != std::string::npos) GTEST_SKIP() << probe.output;
  const auto rows = rows_of({"elastic", "--model", "small_mlp", "--nproc", "2", "--rounds", "1", "--peer", "torch",
                             "--case", "torch-monitor"});
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].at("engine"), "torch");
  expect_aftermath(rows[0], /*replaced=*/true);
}
#endif

// Between network namespaces, which must be gone afterwards.
class BenchSmokeHosts : public BenchSmoke {
 protected:
  void SetUp() override {
    BenchSmoke::SetUp();
    if (const std::string reason = why_no_virtual_network(/*shaped=*/true); !reason.empty()) GTEST_SKIP() << reason;
  }

  nlohmann::json rows_between_hosts(std::vector<std::string> arguments) {
    arguments.insert(arguments.end(), {"--hosts", "2:1", "--rate", "1gbit", "--rounds", "1", "--json", json_path()});
    const std::string log = folder_.path() + "/log";
    ChildProcess bench(command(arguments), {}, log);
    EXPECT_TRUE(bench.wait_for_end(120'000)) << read_all(log);
    output_ = read_all(log);
    EXPECT_THAT(run_command({"ip", "netns", "list"}).output,
                ::testing::Not(HasSubstr("lockstep-" + std::to_string(bench.pid()))));
    EXPECT_TRUE(std::filesystem::is_empty(scratch()));
    return nlohmann::json::parse(read_all(json_path()), nullptr, false);
  }

  std::string output_;  // of the benchmark
};

TEST_F(BenchSmokeHosts, AllReduceRunsOnEveryEngineAndTheBytesAreCounted) {
  const auto rows = rows_between_hosts(
      {"all_reduce", "--bytes", "64K", "--iterations", "3", "--peer", "gloo", "--peer", "openmpi", "--peer", "mpich"});
  expect_correct(rows);
  EXPECT_TRUE(engines_of(rows).contains("lockstep registered")) << output_;
  for (const std::string peer : {"gloo", "openmpi", "mpich"}) {
    EXPECT_TRUE(engines_of(rows).contains(peer + " private") || output_.find(peer + " is missing") != std::string::npos)
        << output_;
  }
  for (const auto& row : rows) {
    if (row.at("engine") != "limit") {
      EXPECT_GT(row.at("wire_of_least"), 0.9) << row;
    }
  }
}

#ifdef LOCKSTEP_WITH_DDP
TEST_F(BenchSmokeHosts, DdpTrainsBetweenHosts) {
  const auto rows = rows_between_hosts({"ddp", "--model", "cnn", "--batch", "2", "--steps", "1"});
  ASSERT_EQ(rows.size(), 2u) << output_;
  EXPECT_EQ(rows[1].at("engine"), "lockstep");
  EXPECT_EQ(rows[1].at("hosts"), 2);
  EXPECT_EQ(rows[1].at("rate"), "1gbit");
  EXPECT_GT(rows[1].at("forward_backward_ms"), 0.0);
}
#endif

TEST_F(BenchSmoke, AnInterruptEndsItSoonAndLeavesNothingBehind) {
  const std::string log = folder_.path() + "/log";
  ChildProcess bench(command({"all_reduce", "--bytes", "8", "--rounds", "10000", "--peer", "gloo", "--peer", "mpich"}),
                     {}, log);
  const Deadline deadline = Deadline::after(std::chrono::seconds(60));
  while (read_all(log).find("#wrong") == std::string::npos) {
    ASSERT_FALSE(deadline.expired()) << read_all(log);
    ASSERT_FALSE(bench.ended()) << read_all(log);
    ::usleep(20'000);
  }
  ::kill(bench.pid(), SIGINT);
  EXPECT_TRUE(bench.wait_for_end(30'000));
  EXPECT_THAT(read_all(log), HasSubstr("Interrupt"));
  EXPECT_TRUE(std::filesystem::is_empty(scratch()));
  EXPECT_THAT(run_command({"ps", "-e", "-o", "args"}).output, ::testing::Not(HasSubstr(scratch())));
}

}  // namespace
}  // namespace lockstep::bench
