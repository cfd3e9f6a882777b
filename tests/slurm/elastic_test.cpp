// Nodes that are lost during an elastic job: the others continue, and no sample is lost or used twice.
#include <gmock/gmock.h>

#include <fstream>
#include <functional>
#include <thread>

#include "elastic/logged_training.h"
#include "slurm/batch_scripts.h"

namespace lockstep::testing {
namespace {

using ::testing::IsEmpty;

// Training on two nodes, until the test calls finish().
class ElasticTraining {
 public:
  explicit ElasticTraining(SlurmCluster& cluster) : cluster_(cluster) {
    plan_ = {.folder = SlurmCluster::folder() + "/log",
             .samples = 160,
             .epochs = 0,
             .finish = SlurmCluster::folder() + "/finish",
             .step_ms = 10,
             .peer_timeout_ms = 3000,
             .silent_timeout_ms = 2000};
    std::filesystem::create_directory(outside(plan_.folder));
    SlurmJob job = train_job({LOCKSTEP_TRAINING_PROGRAM});
    for (const auto& [name, value] : plan_.variables()) job.environment[name] = value;
    job.environment["PET_NODE_TIMEOUT"] = "3";
    job_ = cluster.submit(job);
  }

  int job() const { return job_; }
  TrainingLog log() const {
    TrainingPlan seen = plan_;
    seen.folder = outside(plan_.folder);
    return check_training(seen);
  }
  // Waits until this many ranks take the newest step. False at the deadline.
  bool wait_for_ranks(int ranks, Deadline deadline) {
    while (newest_size() != ranks) {
      if (deadline.expired()) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(50));  // poll
    }
    return true;
  }
  void finish() { std::ofstream(outside(plan_.finish)).put('\n'); }

 private:
  std::string outside(const std::string& path) const {
    return cluster_.folder_outside() + path.substr(SlurmCluster::folder().size());
  }
  int newest_size() const;  // the number of ranks that take the newest step; 0: none yet

  SlurmCluster& cluster_;
  TrainingPlan plan_;
  int job_ = 0;
};

int ElasticTraining::newest_size() const {
  std::int64_t newest = -1;
  int size = 0;
  for (const auto& file : std::filesystem::directory_iterator(outside(plan_.folder))) {
    std::ifstream lines(file.path());
    for (std::string line; std::getline(lines, line);) {
      std::int64_t step = 0;
      int ranks = 0;
      if (std::sscanf(line.c_str(), "begin %*d %ld %*d %*d %d", &step, &ranks) == 2 && step >= newest) {
        newest = step;
        size = ranks;
      }
    }
  }
  return size;
}

void expect_to_survive(const SlurmOptions& options, const std::function<Status(SlurmCluster&)>& lose_second_node) {
  LOCKSTEP_START_SLURM_OR_SKIP(cluster, options);
  ElasticTraining training(cluster);
  const int job = training.job();
  ASSERT_TRUE(training.wait_for_ranks(4, in_seconds(kJobSeconds))) << cluster.report(job);
  const auto lost = lose_second_node(cluster);
  ASSERT_TRUE(lost.ok()) << lost.to_string();
  // The peer timeout and some time to form a new group, on a busy machine.
  ASSERT_TRUE(training.wait_for_ranks(2, in_seconds(25))) << cluster.report(job);
  training.finish();
  EXPECT_EQ(cluster.wait_for_end(job, in_seconds(kJobSeconds)), "COMPLETED") << cluster.report(job);
  const TrainingLog log = training.log();
  EXPECT_THAT(log.problems, IsEmpty());
  EXPECT_GE(log.epochs, 1);
  EXPECT_GE(log.generations, 2);
  EXPECT_THAT(cluster.wait_for_idle_node(0, in_seconds(20)), IsEmpty());
}

TEST(SlurmElastic, TrainingContinuesWithoutANodeThatIsSetDown) {
  expect_to_survive({}, [](SlurmCluster& cluster) { return cluster.set_down(1); });
}

TEST(SlurmElastic, TrainingContinuesWithoutANodeThatLosesPower) {
  // Slurm ends the job only after it has detected the loss itself.
  expect_to_survive({.node_timeout = 6}, [](SlurmCluster& cluster) { return cluster.power_off(1); });
}

}  // namespace
}  // namespace lockstep::testing
