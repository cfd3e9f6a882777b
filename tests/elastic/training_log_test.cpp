// The checker of the chaos test finds what it looks for.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>

#include "elastic/logged_training.h"

namespace lockstep::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class TrainingLogCheck : public ::testing::Test {
 protected:
  TrainingLogCheck() {
    char name[] = "/tmp/lockstep_log_XXXXXX";
    plan_ = {.folder = ::mkdtemp(name), .samples = 4};
  }
  ~TrainingLogCheck() override { std::filesystem::remove_all(plan_.folder); }
  // Two steps of two samples each in generation 1, by one rank.
  void write(const std::string& process, const std::string& lines) const {
    std::ofstream(plan_.folder + "/" + process) << lines;
  }

  TrainingPlan plan_;
};

constexpr const char* kUndisturbed =
    "begin 0 0 1 0 1 0 1\ncommit 0 0 1 0 a 0x1p+0\nbegin 0 1 1 0 1 2 3\ncommit 0 1 1 0 b 0x1p+0\nend 0\n";

TEST_F(TrainingLogCheck, AcceptsAnUndisturbedTraining) {
  write("1", kUndisturbed);
  EXPECT_THAT(check_training(plan_).problems, IsEmpty());
  EXPECT_EQ(check_training(plan_).epochs, 1);
}

TEST_F(TrainingLogCheck, AcceptsAStepThatANewerGenerationMadeAgain) {
  write("1", "begin 0 0 1 0 1 0 1\ncommit 0 0 1 0 a 0x1p+0\nbegin 0 1 1 0 1 2 3\ncommit 0 1 1 0 b 0x1p+0\n");
  write("2", "begin 0 1 2 0 1 2 3\ncommit 0 1 2 0 c 0x1p+0\nend 0\n");
  EXPECT_THAT(check_training(plan_).problems, IsEmpty());
}

TEST_F(TrainingLogCheck, FindsTwoLineages) {
  write("1", kUndisturbed);
  write("2", "begin 0 0 2 0 1 0 1\ncommit 0 0 2 0 c 0x1p+0\nbegin 0 1 2 0 1 2 3\ncommit 0 1 2 0 d 0x1p+0\n");
  EXPECT_THAT(check_training(plan_).problems,
              ElementsAre(HasSubstr("two lineages: generation 1 made step 1, but generation 2 began at step 0")));
}

TEST_F(TrainingLogCheck, FindsReplicasThatDiffer) {
  write("1", kUndisturbed);
  write("2", "commit 0 0 1 1 x 0x1p+0\n");
  EXPECT_THAT(check_training(plan_).problems, ElementsAre(HasSubstr("2 different hashes")));
}

TEST_F(TrainingLogCheck, FindsLostAndRepeatedSamples) {
  write("1", "begin 0 0 1 0 1 0 1\ncommit 0 0 1 0 a 0x1p+0\nbegin 0 1 1 0 1 1 2\ncommit 0 1 1 0 b 0x1p+0\nend 0\n");
  EXPECT_THAT(check_training(plan_).problems, ElementsAre(HasSubstr("1 samples were lost, 1 used more than once")));
}

}  // namespace
}  // namespace lockstep::testing
