// Elastic jobs of real processes whose state is a counter: which processes continue after which fault.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>

#include "elastic/counting_rank.h"
#include "multiproc/rank_process.h"
#include "support/hosts.h"
#include "support/process_set.h"

namespace lockstep::testing {
namespace {

// Regardless of the number of generations, a process ends with the descriptors and threads that it started with.
LOCKSTEP_PROCESS_ROLE(counting) {
  const NothingLeftBehind nothing;
  const int code = run_counting_rank();
  nothing.check();
  return code;
}

class ElasticJob : public ::testing::Test {
 protected:
  ElasticJob() {
    char name[] = "/tmp/lockstep_elastic_XXXXXX";
    folder_ = ::mkdtemp(name);
    remove_roster();
    environment_ = {{"LOCKSTEP_ROSTER", folder_ + "/rosters/roster"}, {"FINISH", folder_ + "/finish"}};
  }
  void remove_roster() {
    std::filesystem::remove_all(folder_ + "/rosters");
    std::filesystem::create_directory(folder_ + "/rosters");
  }
  ~ElasticJob() override { std::filesystem::remove_all(folder_); }

  ProcessSet start(int ranks) { return start_ranks(ranks, "counting", {.environment = environment_}); }
  // Three ranks, of which the first is stopped until the others have left it behind.
  ProcessSet continue_without_stopped_rank_zero() {
    environment_["PEER_TIMEOUT_MS"] = "1000";
    environment_["SILENT_TIMEOUT_MS"] = "1000";
    ProcessSet ranks = start(3);
    for (int rank = 0; rank < 3; ++rank) expect_line(ranks, rank, "generation 1");
    ranks.kill(0, SIGSTOP);
    expect_line(ranks, 1, "generation 2 rank 0 of 2");
    return ranks;
  }
  ProcessSet start_newcomer() {
    Environment environment = environment_;
    environment["LOCKSTEP_NEWCOMER"] = "1";
    environment["LOCKSTEP_STORE_FD"] = std::nullopt;
    return start_ranks(1, "counting", {.environment = environment});
  }
  void finish() { std::ofstream(folder_ + "/finish").put('\n'); }
  static void expect_line(ProcessSet& ranks, int rank, const std::string& line, double seconds = 20) {
    ASSERT_TRUE(ranks.wait_for_line(rank, line, in_seconds(seconds))) << "no line '" << line << "'\n" << ranks.report();
  }

  std::string folder_;
  Environment environment_;
};

TEST_F(ElasticJob, RunsUndisturbed) {
  ProcessSet ranks = start(3);
  for (int rank = 0; rank < 3; ++rank) expect_line(ranks, rank, fmt::format("generation 1 rank {} of 3 step 0", rank));
  finish();
  ASSERT_TRUE(ranks.wait_all(in_seconds(20))) << ranks.report();
  EXPECT_TRUE(ranks.all_succeeded()) << ranks.report();
}

TEST_F(ElasticJob, SurvivorsContinueInOrderWhicheverRankDies) {
  for (const int victim : {0, 1, 3}) {
    std::filesystem::remove(folder_ + "/finish");
    remove_roster();
    ProcessSet ranks = start(4);
    for (int rank = 0; rank < 4; ++rank) expect_line(ranks, rank, "generation 1");
    ranks.kill(victim, SIGKILL);
    for (int rank = 0, next = 0; rank < 4; ++rank) {
      if (rank == victim) continue;
      expect_line(ranks, rank, fmt::format("generation 2 rank {} of 3", next++));
    }
    finish();
    ASSERT_TRUE(ranks.wait_all(in_seconds(20))) << ranks.report();
    for (int rank = 0; rank < 4; ++rank) {
      EXPECT_TRUE(rank == victim || ranks.exit_status(rank)->success()) << ranks.report();
    }
  }
}

TEST_F(ElasticJob, TheLastSurvivorContinuesAlone) {
  ProcessSet ranks = start(4);
  for (int rank = 0; rank < 4; ++rank) expect_line(ranks, rank, "generation 1");
  for (const int victim : {0, 1, 2}) ranks.kill(victim, SIGKILL);
  expect_line(ranks, 3, "rank 0 of 1");
  finish();
  ASSERT_TRUE(ranks.wait(3, in_seconds(20))) << ranks.report();
  EXPECT_TRUE(ranks.exit_status(3)->success()) << ranks.report();
}

TEST_F(ElasticJob, ANewcomerJoinsAndReceivesTheState) {
  ProcessSet ranks = start(2);
  for (int rank = 0; rank < 2; ++rank) expect_line(ranks, rank, "generation 1");
  ProcessSet newcomer = start_newcomer();
  expect_line(newcomer, 0, "rank 2 of 3 step");
  finish();
  ASSERT_TRUE(newcomer.wait_all(in_seconds(20))) << newcomer.report();
  ASSERT_TRUE(ranks.wait_all(in_seconds(20))) << ranks.report();
  EXPECT_TRUE(ranks.all_succeeded() && newcomer.all_succeeded()) << ranks.report() << newcomer.report();
}

TEST_F(ElasticJob, AReplacementRestoresTheSizeEvenAfterTheLossOfRankZero) {
  ProcessSet ranks = start(3);
  for (int rank = 0; rank < 3; ++rank) expect_line(ranks, rank, "generation 1");
  ranks.kill(0, SIGKILL);
  ProcessSet newcomer = start_newcomer();
  expect_line(newcomer, 0, "rank 2 of 3 step");
  expect_line(ranks, 1, "rank 0 of 3 step");
  finish();
  ASSERT_TRUE(newcomer.wait_all(in_seconds(20))) << newcomer.report();
  EXPECT_TRUE(newcomer.all_succeeded()) << newcomer.report();
}

// It shares memory with the others: if it continued, it could write into their gradients.
TEST_F(ElasticJob, AStoppedProcessOfTheSameHostIsEndedBeforeTheOthersContinue) {
  ProcessSet ranks = continue_without_stopped_rank_zero();
  ASSERT_TRUE(ranks.wait(0, in_seconds(1))) << ranks.report();
  EXPECT_EQ(ranks.exit_status(0)->signal, SIGKILL) << ranks.report();
  ProcessSet newcomer = start_newcomer();
  expect_line(newcomer, 0, "rank 2 of 3");
  finish();
  ASSERT_TRUE(newcomer.wait_all(in_seconds(20))) << newcomer.report();
  ASSERT_TRUE(ranks.wait_all(in_seconds(20))) << ranks.report();
  EXPECT_TRUE(newcomer.all_succeeded()) << newcomer.report();
}

// Without a roster nobody knows whether the others see its pid.
TEST_F(ElasticJob, AStoppedProcessWithoutARosterIsLeftBehindAndRejoins) {
  environment_["LOCKSTEP_ROSTER"] = std::nullopt;
  ProcessSet ranks = continue_without_stopped_rank_zero();
  ranks.kill(0, SIGCONT);
  expect_line(ranks, 0, "rank 2 of 3");
  finish();
  ASSERT_TRUE(ranks.wait_all(in_seconds(20))) << ranks.report();
  EXPECT_TRUE(ranks.all_succeeded()) << ranks.report();
}

TEST_F(ElasticJob, BelowTheMinimumTheJobEndsWithTheReason) {
  environment_["LOCKSTEP_MIN_RANKS"] = "2";
  environment_["QUORUM_TIMEOUT_MS"] = "1000";
  ProcessSet ranks = start(2);
  for (int rank = 0; rank < 2; ++rank) expect_line(ranks, rank, "generation 1");
  ranks.kill(0, SIGKILL);
  ASSERT_TRUE(ranks.wait_all(in_seconds(20))) << ranks.report();
  EXPECT_FALSE(ranks.exit_status(1)->success());
  EXPECT_THAT(ranks.error_output(1), ::testing::HasSubstr("1 ranks are left, but at least 2 are required"));
}

TEST_F(ElasticJob, WaitingNewcomersLearnOfTheEnd) {
  environment_["LOCKSTEP_MAX_RANKS"] = "2";
  ProcessSet ranks = start(2);
  for (int rank = 0; rank < 2; ++rank) expect_line(ranks, rank, "generation 1");
  ProcessSet newcomer = start_newcomer();
  EXPECT_FALSE(newcomer.wait_for_line(0, "generation", in_seconds(1)));
  finish();
  ASSERT_TRUE(ranks.wait_all(in_seconds(20))) << ranks.report();
  ASSERT_TRUE(newcomer.wait_all(in_seconds(20))) << newcomer.report();
  EXPECT_TRUE(newcomer.all_succeeded()) << newcomer.report();
  EXPECT_THAT(newcomer.output(0), ::testing::HasSubstr("finished without me"));
}

class ElasticJobOnTwoHosts : public ElasticJob {
 protected:
  // Four ranks, two on each host. `cut` separates the hosts and `heal` connects them again.
  void expect_one_half_continues(HostSet& hosts, const std::function<Status()>& cut,
                                 const std::function<Status()>& heal) {
    environment_["PEER_TIMEOUT_MS"] = "1000";
    environment_["SILENT_TIMEOUT_MS"] = "1000";
    environment_["LOCKSTEP_ROSTER"] = std::nullopt;
    ProcessSet ranks = start_ranks(4, "counting", {.environment = environment_, .hosts = &hosts});
    for (int rank = 0; rank < 4; ++rank) expect_line(ranks, rank, "generation 1");
    ASSERT_TRUE(cut().ok());
    expect_line(ranks, 0, "generation 2 rank 0 of 2", 30);
    EXPECT_FALSE(ranks.wait_for_line(2, "generation 2", in_seconds(3))) << ranks.report();
    ASSERT_TRUE(heal().ok());
    // The two may rejoin together or one after the other.
    const Deadline deadline = in_seconds(60);
    const auto whole_again = [&] {
      const std::string output = ranks.output(0);
      const auto second = output.find("generation 2");
      return output.find("rank 0 of 4", second) != std::string::npos;
    };
    while (!whole_again() && !deadline.expired()) ranks.wait_for_line(0, "never printed", in_seconds(0.05));
    ASSERT_TRUE(whole_again()) << ranks.report();
    finish();
    ASSERT_TRUE(ranks.wait_all(in_seconds(20))) << ranks.report();
    EXPECT_TRUE(ranks.all_succeeded()) << ranks.report();
  }
};

TEST_F(ElasticJobOnTwoHosts, TheOneCutOffWaitsAndRejoins) {
  LOCKSTEP_MAKE_HOSTS_OR_SKIP(hosts, 2);
  expect_one_half_continues(
      hosts, [&] { return hosts.cut_link(1); }, [&] { return hosts.restore_link(1); });
}

// Each half sees what it would see if all processes of the other one had ended.
TEST_F(ElasticJobOnTwoHosts, BehindAFirewallThatResetsOnlyOneContinues) {
  LOCKSTEP_MAKE_HOSTS_OR_SKIP(hosts, 2);
  const auto set_all = [&](HostSet::Firewall firewall) {
    const Status first = hosts.set_firewall(0, firewall);
    return first.ok() ? hosts.set_firewall(1, firewall) : first;
  };
  if (const Status usable = set_all(HostSet::Firewall::open); !usable.ok()) GTEST_SKIP() << usable.message();
  expect_one_half_continues(
      hosts, [&] { return set_all(HostSet::Firewall::reject); }, [&] { return set_all(HostSet::Firewall::open); });
}

}  // namespace
}  // namespace lockstep::testing
