// Thousands of histories of an elastic job, each from a seed. LOCKSTEP_SIMULATION_SEED=n replays one;
// LOCKSTEP_SIMULATIONS=n runs that many.
#include <gtest/gtest.h>

#include <cstdlib>

#include "elastic/simulated_job.h"

namespace lockstep::elastic {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

int from_environment(const char* name, int otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::atoi(text);
}

const Policy kPatient = {.min_ranks = 1, .max_ranks = 12, .quorum_timeout = seconds(100)};

// One of everything that can happen.
void disturb(SimulatedJob& job, std::mt19937& random) {
  const auto any = [&](int count) { return static_cast<int>(random() % static_cast<unsigned>(count)); };
  switch (random() % 8) {
    case 0:
      if (job.living() > 1) job.kill(any(job.processes()));
      break;
    case 1: job.stop(any(job.processes())); break;
    case 2:
    case 3: job.resume(any(job.processes())); break;
    case 4: job.set_link(any(job.hosts()), false); break;
    case 5: job.set_link(any(job.hosts()), true); break;
    case 6:
      if (job.living() < 10) job.add_newcomer(any(job.hosts()));
      break;
    default: job.kill_in_next_step(); break;
  }
}

// Returns false if the job had to end with this seed, because no process that had the state was left, or because
// members had ended and the survivors could not know whether they had continued elsewhere before.
bool run_history(unsigned seed) {
  std::mt19937 random(seed);
  const int hosts = 1 + static_cast<int>(random() % 4);
  SimulatedJob job(hosts + static_cast<int>(random() % 6), hosts, seed, kPatient);
  job.run_for(milliseconds(200));
  const int faults = 5 + static_cast<int>(random() % 20);
  for (int fault = 0; fault < faults && job.violations().empty(); ++fault) {
    disturb(job, random);
    // Sometimes the next fault hits during the recovery, sometimes long after it.
    job.run_for(milliseconds(random() % 3 == 0 ? random() % 8000 : random() % 60));
  }
  EXPECT_TRUE(job.violations().empty()) << "seed " << seed << "\n" << job.describe();
  if (job.gave_up() > 0) return false;
  job.heal();
  job.run_for(seconds(120));
  const std::int64_t before = job.committed_steps();
  job.run_for(seconds(5));
  if (job.gave_up() > 0) return false;
  EXPECT_TRUE(job.violations().empty()) << "seed " << seed << "\n" << job.describe();
  EXPECT_GT(job.committed_steps(), before) << "no progress with seed " << seed << "\n" << job.describe();
  EXPECT_EQ(job.size_of_live_generation(), job.living()) << "seed " << seed << "\n" << job.describe();
  return true;
}

TEST(RecoverySimulation, EveryHistoryHasOneActiveGenerationAndMakesProgress) {
  const int seed = from_environment("LOCKSTEP_SIMULATION_SEED", -1);
  if (seed >= 0) {
    run_history(static_cast<unsigned>(seed));
    return;
  }
  const int histories = from_environment("LOCKSTEP_SIMULATIONS", 2000);
  int continued = 0;
  for (int i = 0; i < histories && !HasFailure(); ++i) continued += run_history(static_cast<unsigned>(i)) ? 1 : 0;
  // Most histories leave a process that can continue; otherwise this test would prove little.
  EXPECT_GT(continued, histories * 8 / 10);
}

TEST(RecoverySimulation, SurvivorsContinueAfterADeath) {
  SimulatedJob job(4, 1, 1, kPatient);
  job.run_for(milliseconds(100));
  job.kill(0);
  job.run_for(milliseconds(200));
  EXPECT_EQ(job.size_of_live_generation(), 3) << job.describe();
}

TEST(RecoverySimulation, DeathsAtTheSameTimeAreOneRecovery) {
  SimulatedJob job(5, 1, 1, kPatient);
  job.run_for(milliseconds(100));
  for (const int process : {0, 1, 4}) job.kill(process);
  job.run_for(milliseconds(200));
  EXPECT_EQ(job.size_of_live_generation(), 2) << job.describe();
}

TEST(RecoverySimulation, ADeathDuringTheRecoveryIsSurvived) {
  for (int after = 0; after < 60; ++after) {
    SimulatedJob job(4, 1, static_cast<unsigned>(after), kPatient);
    job.run_for(milliseconds(100));
    job.kill(3);
    job.run_for(milliseconds(after));
    job.kill(0);
    job.run_for(seconds(10));
    EXPECT_EQ(job.size_of_live_generation(), 2) << "killed after " << after << " ms\n" << job.describe();
  }
}

TEST(RecoverySimulation, ANewcomerThatDiesWhileJoiningIsSurvived) {
  for (int after = 0; after < 100; ++after) {
    SimulatedJob job(3, 1, static_cast<unsigned>(after), kPatient);
    job.run_for(milliseconds(100));
    job.add_newcomer(0);
    job.run_for(milliseconds(after));
    job.kill(3);
    job.run_for(seconds(10));
    EXPECT_EQ(job.size_of_live_generation(), 3) << "killed after " << after << " ms\n" << job.describe();
    EXPECT_TRUE(job.violations().empty()) << job.describe();
  }
}

TEST(RecoverySimulation, NewcomersJoin) {
  SimulatedJob job(2, 2, 1, kPatient);
  job.run_for(milliseconds(100));
  job.add_newcomer(0);
  job.add_newcomer(1);
  job.run_for(seconds(2));
  EXPECT_EQ(job.size_of_live_generation(), 4) << job.describe();
}

TEST(RecoverySimulation, OnlyOnePartOfASplitJobContinues) {
  SimulatedJob job(4, 2, 1, kPatient);
  job.run_for(milliseconds(100));
  job.set_link(1, false);
  job.run_for(seconds(30));
  const std::int64_t steps = job.committed_steps();
  EXPECT_EQ(job.size_of_live_generation(), 2) << job.describe();
  job.set_link(1, true);
  job.run_for(seconds(30));
  EXPECT_EQ(job.size_of_live_generation(), 4) << job.describe();
  EXPECT_GT(job.committed_steps(), steps);
  EXPECT_TRUE(job.violations().empty()) << job.describe();
}

TEST(RecoverySimulation, AStoppedProcessRejoinsAsANewcomer) {
  SimulatedJob job(3, 1, 1, kPatient);
  job.run_for(milliseconds(100));
  job.stop(0);
  job.run_for(seconds(20));
  EXPECT_EQ(job.size_of_live_generation(), 2) << job.describe();
  job.resume(0);
  job.run_for(seconds(20));
  EXPECT_EQ(job.size_of_live_generation(), 3) << job.describe();
}

TEST(RecoverySimulation, AProcessThatFlapsDoesNotStopTheOthers) {
  SimulatedJob job(3, 1, 1, kPatient);
  job.run_for(milliseconds(100));
  for (int flap = 0; flap < 20; ++flap) {
    job.stop(1);
    job.run_for(milliseconds(1500));
    job.resume(1);
    job.run_for(milliseconds(1500));
  }
  EXPECT_TRUE(job.violations().empty()) << job.describe();
  EXPECT_GT(job.committed_steps(), 100) << job.describe();
}

TEST(RecoverySimulation, BelowTheMinimumTheJobEndsWithAReason) {
  SimulatedJob job(3, 1, 1, {.min_ranks = 3, .max_ranks = 4, .quorum_timeout = seconds(10)});
  job.run_for(milliseconds(100));
  job.kill(2);
  job.run_for(seconds(5));
  EXPECT_EQ(job.gave_up(), 0);
  job.run_for(seconds(10));
  EXPECT_EQ(job.living(), 0) << job.describe();
}

}  // namespace
}  // namespace lockstep::elastic
