// The batch scripts on nodes that do not fail.
#include <gmock/gmock.h>

#include <sstream>

#include "slurm/batch_scripts.h"

namespace lockstep::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

// "step 200  loss 2.1691", without the prefix that names the rank.
std::vector<std::string> losses_in(const std::string& text) {
  std::vector<std::string> result;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const auto step = line.find("step ");
    if (step != std::string::npos && line.find("loss") != std::string::npos) result.push_back(line.substr(step));
  }
  return result;
}

void expect_idle_nodes(SlurmCluster& cluster) {
  for (const int node : {0, 1}) EXPECT_THAT(cluster.wait_for_idle_node(node, in_seconds(20)), IsEmpty());
}

// Trains the linear model in a job, and then with four processes on one host: the same data in the same order
// must give the same losses.
void expect_training_as_on_one_host(const SlurmJob& request) {
  LOCKSTEP_START_SLURM_OR_SKIP(cluster);
  const int job = cluster.submit(request);
  ASSERT_EQ(cluster.wait_for_end(job, in_seconds(kJobSeconds)), "COMPLETED") << cluster.report(job);
  const std::string output = cluster.output(job);
  EXPECT_THAT(output, HasSubstr("4 replicas, bit-identical"));
  // The example starts its own processes if no launcher started it as a rank.
  ProcessSet alone =
      start_program(1, {example("02_linear"), "--nproc", "4"},
                    {.environment = {{"RANK", std::nullopt}, {"WORLD_SIZE", std::nullopt}, {"OMP_NUM_THREADS", "1"}}});
  ASSERT_TRUE(alone.wait_all(in_seconds(kJobSeconds))) << alone.report();
  EXPECT_EQ(losses_in(output).size(), 4) << output;
  EXPECT_EQ(losses_in(output), losses_in(alone.output(0))) << alone.report();
  expect_idle_nodes(cluster);
}

TEST(Slurm, RanksOfSrunTrainLikeThoseOfOneHost) { expect_training_as_on_one_host(srun_job({example("02_linear")})); }

TEST(Slurm, RanksOfOneLauncherPerNodeTrainLikeThoseOfOneHost) {
  expect_training_as_on_one_host(train_job({example("02_linear")}));
}

TEST(Slurm, ALostRankOfSrunEndsTheJob) {
  LOCKSTEP_START_SLURM_OR_SKIP(cluster);
  // Otherwise the other ranks would wait for it for minutes.
  const int job = cluster.submit(
      srun_job({"sh", "-c", fmt::format("[ $SLURM_PROCID != 3 ] || exit 7; exec {}", example("02_linear"))}));
  EXPECT_EQ(cluster.wait_for_end(job, in_seconds(kJobSeconds)), "FAILED") << cluster.report(job);
  EXPECT_THAT(cluster.output(job), HasSubstr("task 3: Exited with exit code 7"));
  expect_idle_nodes(cluster);
}

}  // namespace
}  // namespace lockstep::testing
