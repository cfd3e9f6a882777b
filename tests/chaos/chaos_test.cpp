// Chaos: an elastic training on three hosts with random faults from a seed. After each fault it must continue within a
// time limit, and at the end no sample may be lost or repeated, no rank may differ, and no process may be left over.
//
//   LOCKSTEP_CHAOS_FAULTS=200 LOCKSTEP_CHAOS_SEED=7 build/dev/tests/chaos/chaos_tests     (or tools/chaos 200 7)
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <random>
#include <thread>

#include "chaos/chaos_job.h"
#include "chaos/nemesis.h"

namespace lockstep::testing {
namespace {

int from_environment(const char* name, int otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::atoi(text);
}

class Chaos : public ::testing::Test {
 protected:
  Chaos() {
    char name[] = "/tmp/lockstep_chaos_XXXXXX";
    folder_ = ::mkdtemp(name);
  }
  ~Chaos() override {
    if (!HasFailure()) std::filesystem::remove_all(folder_);
  }

  std::string folder_;
};

TEST_F(Chaos, CostsNothingThatWasCommitted) {
  LOCKSTEP_MAKE_HOSTS_OR_SKIP(hosts, 3);
  const int faults = from_environment("LOCKSTEP_CHAOS_FAULTS", 20);
  const int seed = from_environment("LOCKSTEP_CHAOS_SEED", static_cast<int>(std::random_device{}() % 100000));
  std::printf("chaos: %d faults, seed %d\n", faults, seed);

  ChaosOptions options{.launcher = LOCKSTEP_COMMAND, .program = LOCKSTEP_TRAINING_PROGRAM, .folder = folder_};
  options.plan = {.folder = folder_ + "/log",
                  .samples = 960,
                  .epochs = 0,
                  .finish = folder_ + "/finish",
                  .step_ms = 10,
                  .peer_timeout_ms = 2000,
                  .silent_timeout_ms = 2000};
  ChaosJob job(options, hosts);
  Nemesis nemesis(job, hosts, static_cast<unsigned>(seed));
  for (int host = 0; host < options.hosts; ++host) job.start_node(host);
  ASSERT_TRUE(job.wait_for_step(3, in_seconds(120))) << "seed " << seed << "\n" << job.report();

  for (int fault = 0; fault < faults; ++fault) {
    // Newcomers must join first, so that no fault hits all ranks that have the state: that would rightly end the job.
    if (!job.wait_for_holders(5, in_seconds(45))) {
      std::printf("before fault %d: %d launchers started again\n", fault, job.restart_incomplete_nodes());
    }
    ASSERT_TRUE(job.wait_for_holders(5, in_seconds(90)))
        << "newcomers did not join before fault " << fault << ", seed " << seed << "\n"
        << job.report();
    const std::string what = nemesis.disturb();
    const auto begin = std::chrono::steady_clock::now();
    const std::int64_t step = job.newest_step();
    ASSERT_TRUE(job.wait_for_step(step + 2, in_seconds(60))) << "no progress within 60 s after fault " << fault << " ("
                                                             << what << "), seed " << seed << ", step " << step << "\n"
                                                             << job.report();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    std::printf("fault %d: %s; continued after %.1f s, at step %ld, with %zu ranks\n", fault, what.c_str(),
                took.count(), job.newest_step(), job.ranks().size());
    std::fflush(stdout);
    std::this_thread::sleep_for(std::chrono::milliseconds(nemesis.any(1500)));
  }

  // A rank that joined after all others had ended would wait for them.
  ASSERT_TRUE(job.wait_for_holders(6, in_seconds(90))) << "seed " << seed << "\n" << job.report();
  ASSERT_TRUE(job.finish(in_seconds(180))) << "seed " << seed << "\n" << job.report();
  EXPECT_TRUE(job.all_succeeded()) << job.report();
  const TrainingLog log = check_training(options.plan);
  EXPECT_THAT(log.problems, ::testing::IsEmpty()) << "seed " << seed;
  EXPECT_GT(log.epochs, 0);
  std::printf("chaos: %ld steps, %d epochs, %d generations\n", log.steps, log.epochs, log.generations);
  // The guard of a launcher that was killed stays for --node-timeout, 30 s, to attest its end.
  const Deadline gone = in_seconds(45);
  while (!job.leftovers().empty() && !gone.expired()) std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_THAT(job.leftovers(), ::testing::IsEmpty());
}

}  // namespace
}  // namespace lockstep::testing
