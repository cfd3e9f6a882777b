// Elastic training with DDP: real processes that are killed, stopped and replaced, and what must hold afterwards.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <random>

#include "checkpoint/snapshot_directory.h"
#include "elastic/logged_training.h"
#include "support/process_set.h"

namespace lockstep::testing {
namespace {

LOCKSTEP_PROCESS_ROLE(training) { return run_logged_training(TrainingPlan::from_environment()); }

class ElasticTraining : public ::testing::Test {
 protected:
  ElasticTraining() {
    char name[] = "/tmp/lockstep_training_XXXXXX";
    folder_ = ::mkdtemp(name);
    plan_.folder = folder_ + "/log";
    start_over();
  }
  ~ElasticTraining() override { std::filesystem::remove_all(folder_); }

  void remove_roster() {
    std::filesystem::remove_all(folder_ + "/rosters");
    std::filesystem::create_directory(folder_ + "/rosters");
  }
  void start_over() {
    std::filesystem::remove_all(plan_.folder);
    std::filesystem::create_directory(plan_.folder);
    remove_roster();
  }
  // own_rosters: as if each rank were on a host of its own, where the others can neither see nor end it.
  ProcessSet start(int ranks, bool newcomers = false, bool own_rosters = false) {
    Environment environment = {{"LOCKSTEP_ROSTER", folder_ + "/rosters/roster"},
                               {"OMP_NUM_THREADS", "1"},
                               {"LOCKSTEP_MIN_RANKS", std::to_string(min_ranks_)}};
    for (const auto& [name, value] : plan_.variables()) environment[name] = value;
    if (newcomers) environment["LOCKSTEP_NEWCOMER"] = "1";
    const auto own_roster = [this](int rank) {
      return Environment{{"LOCKSTEP_ROSTER", fmt::format("{}/rosters/of_rank_{}", folder_, rank)}};
    };
    StartOptions options{.environment = environment};
    if (own_rosters) options.rank_variables = own_roster;
    return start_ranks(ranks, "training", options);
  }
  // Waits until this many steps were begun; false at the deadline.
  bool wait_for_steps(std::int64_t steps, Deadline deadline) const {
    while (!deadline.expired()) {
      for (const auto& file : std::filesystem::directory_iterator(plan_.folder)) {
        std::ifstream log(file.path());
        for (std::string line; std::getline(log, line);) {
          std::int64_t epoch = 0, step = 0;
          if (std::sscanf(line.c_str(), "commit %ld %ld", &epoch, &step) == 2 && step >= steps) return true;
        }
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return false;
  }
  void expect_no_problems() const {
    const TrainingLog log = check_training(plan_);
    EXPECT_THAT(log.problems, ::testing::IsEmpty());
    EXPECT_GT(log.steps, 0);
    EXPECT_EQ(log.epochs, plan_.epochs);
  }

  std::string folder_;
  TrainingPlan plan_;
  int min_ranks_ = 1;
};

TEST_F(ElasticTraining, UndisturbedUsesEachSampleOnce) {
  ProcessSet ranks = start(3);
  ASSERT_TRUE(ranks.wait_all(in_seconds(60))) << ranks.report();
  ASSERT_TRUE(ranks.all_succeeded()) << ranks.report();
  expect_no_problems();
}

// 4 ranks x 4 samples: of 241 samples one remains, and of 3 one rank gets none.
TEST_F(ElasticTraining, ARemainderSmallerThanOneBatchPerRankIsUsedOnce) {
  for (const int samples : {241, 3}) {
    start_over();
    plan_.samples = samples;
    plan_.epochs = 2;
    ProcessSet ranks = start(4);
    ASSERT_TRUE(ranks.wait_all(in_seconds(60))) << ranks.report();
    ASSERT_TRUE(ranks.all_succeeded()) << ranks.report();
    expect_no_problems();
  }
}

TEST_F(ElasticTraining, SurvivorsFinishTheTraining) {
  plan_.step_ms = 5;
  for (const int victim : {0, 2}) {
    start_over();
    ProcessSet ranks = start(4);
    ASSERT_TRUE(wait_for_steps(10, in_seconds(60))) << ranks.report();
    ranks.kill(victim, SIGKILL);
    ASSERT_TRUE(ranks.wait_all(in_seconds(60))) << ranks.report();
    for (int rank = 0; rank < 4; ++rank) {
      EXPECT_TRUE(rank == victim || ranks.exit_status(rank)->success()) << ranks.report();
    }
    expect_no_problems();
  }
}

TEST_F(ElasticTraining, AReplacementReceivesTheStateFromItsPeers) {
  plan_.step_ms = 10;
  plan_.epochs = 0;
  plan_.finish = folder_ + "/finish";
  ProcessSet ranks = start(3);
  ASSERT_TRUE(wait_for_steps(5, in_seconds(60))) << ranks.report();
  ranks.kill(1, SIGKILL);
  ProcessSet replacement = start(1, /*newcomers=*/true);
  const Deadline deadline = in_seconds(90);
  while (check_training(plan_).generations < 3 && !deadline.expired()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  std::ofstream(plan_.finish).put('\n');
  ASSERT_TRUE(ranks.wait_all(in_seconds(60))) << ranks.report();
  ASSERT_TRUE(replacement.wait_all(in_seconds(60))) << replacement.report();
  EXPECT_TRUE(replacement.all_succeeded()) << replacement.report();
  const TrainingLog log = check_training(plan_);
  EXPECT_THAT(log.problems, ::testing::IsEmpty());
  EXPECT_GT(log.epochs, 0);
  EXPECT_GE(log.generations, 3);
}

// Deaths at random times, with replacements: no sample is lost or used twice.
TEST_F(ElasticTraining, DeathsAtAnyTimeLoseNoSample) {
  plan_.epochs = 20;
  plan_.step_ms = 2;
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(fmt::format("seed {}", seed));
  std::mt19937 random(seed);
  std::vector<ProcessSet> processes;
  processes.push_back(start(4));
  ASSERT_TRUE(wait_for_steps(3, in_seconds(60))) << processes.front().report();
  // One of the first four stays: a replacement may start so slowly that it has no state yet when all others have died.
  int killed_of_first = 0;
  for (int fault = 0; fault < 6; ++fault) {
    std::this_thread::sleep_for(std::chrono::milliseconds(random() % 150));
    const std::size_t which = random() % processes.size();
    const int rank = static_cast<int>(random() % static_cast<unsigned>(processes[which].size()));
    if (which == 0 && killed_of_first == 3) continue;
    if (!processes[which].kill(rank, SIGKILL)) continue;
    killed_of_first += which == 0 ? 1 : 0;
    processes.push_back(start(1, true));
  }
  for (ProcessSet& set : processes) {
    ASSERT_TRUE(set.wait_all(in_seconds(90))) << set.report();
    for (int rank = 0; rank < set.size(); ++rank) {
      const ExitStatus status = *set.exit_status(rank);
      EXPECT_TRUE(status.success() || status.signal == SIGKILL) << set.report();
    }
  }
  expect_no_problems();
}

// The samples of the steps before the snapshot and after it are those of one undisturbed epoch.
TEST_F(ElasticTraining, BelowTheMinimumTheJobSavesASnapshotAndResumesFromItLater) {
  plan_.step_ms = 10;
  plan_.quorum_timeout_ms = 500;
  plan_.snapshots = folder_ + "/snapshots";
  min_ranks_ = 2;
  ProcessSet ranks = start(2);
  ASSERT_TRUE(wait_for_steps(10, in_seconds(60))) << ranks.report();
  ranks.kill(1, SIGKILL);
  ASSERT_TRUE(ranks.wait_all(in_seconds(60))) << ranks.report();
  EXPECT_THAT(ranks.error_output(0), ::testing::HasSubstr("1 ranks are left, but at least 2 are required"));
  remove_roster();
  ProcessSet again = start(2);
  ASSERT_TRUE(again.wait_all(in_seconds(60))) << again.report();
  ASSERT_TRUE(again.all_succeeded()) << again.report();
  expect_no_problems();
}

// Rank 0 is stopped while it writes a snapshot, on what is a host of its own. The others continue without it and save.
TEST_F(ElasticTraining, ARankThatContinuesInTheMiddleOfASaveDoesNotMakeItsStateTheNewest) {
  plan_.step_ms = 5;
  plan_.epochs = 0;
  plan_.finish = folder_ + "/finish";
  plan_.peer_timeout_ms = 1000;
  plan_.silent_timeout_ms = 500;
  plan_.snapshots = folder_ + "/snapshots";
  plan_.save_every = 5;
  plan_.stop_in_save = 10;
  ProcessSet ranks = start(3, false, /*own_rosters=*/true);
  const auto newest = [&] {
    auto read = checkpoint::read_newest_snapshot(plan_.snapshots);
    return read.ok() && read->snapshot ? read->snapshot->manifest : checkpoint::Manifest{};
  };
  const auto wait_for_generation = [&](std::int64_t generation) {
    const Deadline deadline = in_seconds(60);
    while (newest().generation < generation && !deadline.expired()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    return newest().generation >= generation;
  };
  ASSERT_TRUE(wait_for_generation(2)) << ranks.report();
  const checkpoint::Manifest before = newest();
  EXPECT_NE(before.job, "");
  EXPECT_GT(before.step, 10);
  ranks.kill(0, SIGCONT);
  ASSERT_TRUE(wait_for_generation(3)) << ranks.report();  // it has joined again
  EXPECT_EQ(newest().job, before.job);
  EXPECT_GT(newest().step, before.step);
  std::ofstream(plan_.finish).put('\n');
  ASSERT_TRUE(ranks.wait_all(in_seconds(60))) << ranks.report();
  EXPECT_TRUE(ranks.all_succeeded()) << ranks.report();
  EXPECT_THAT(ranks.error_output(0), ::testing::HasSubstr("the job continues without this process"));
  for (const auto& name : value_or_throw(checkpoint::list_snapshots(plan_.snapshots))) {
    EXPECT_NE(name.step, 10) << "the snapshot of the stopped rank was published";
  }
  EXPECT_THAT(check_training(plan_).problems, ::testing::IsEmpty());
}

// A pause shorter than the peer timeout changes nothing.
TEST_F(ElasticTraining, AShortPauseDoesNotChangeTheResult) {
  plan_.step_ms = 5;
  ProcessSet undisturbed = start(3);
  ASSERT_TRUE(undisturbed.wait_all(in_seconds(60))) << undisturbed.report();
  const TrainingLog expected = check_training(plan_);
  start_over();
  ProcessSet ranks = start(3);
  ASSERT_TRUE(wait_for_steps(5, in_seconds(60))) << ranks.report();
  for (int rank = 0; rank < 3; ++rank) {
    ranks.kill(rank, SIGSTOP);
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    ranks.kill(rank, SIGCONT);
  }
  ASSERT_TRUE(ranks.wait_all(in_seconds(60))) << ranks.report();
  const TrainingLog log = check_training(plan_);
  EXPECT_THAT(log.problems, ::testing::IsEmpty());
  EXPECT_EQ(log.losses, expected.losses);
  EXPECT_EQ(log.hashes, expected.hashes);
}

}  // namespace
}  // namespace lockstep::testing
