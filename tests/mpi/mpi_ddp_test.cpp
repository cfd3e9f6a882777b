// DDP over each MPI: the roles of ddp_process_tests and an example, started by mpirun.
#include <gmock/gmock.h>

#include <sstream>

#include "mpi/mpirun.h"
#include "support/child.h"

namespace lockstep::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class MpiTraining : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (!is_installed(GetParam())) GTEST_SKIP() << "mpirun." << GetParam() << " is not installed";
  }

  static ProcessSet start(int ranks, const std::vector<std::string>& program, const std::string& role,
                          const std::vector<std::string>& options = {}) {
    Environment environment = {{"LOCKSTEP_BACKEND", GetParam()}, {"OMP_NUM_THREADS", "1"}};
    if (!role.empty()) environment[kRoleVariable] = role;
    return mpirun(GetParam(), ranks, program, options, environment);
  }
};
INSTANTIATE_TEST_SUITE_P(Mpis, MpiTraining, ::testing::Values("openmpi", "mpich"),
                         [](const auto& info) { return info.param; });

TEST_P(MpiTraining, EqualsThatOfOneProcess) {
  for (const int ranks : {2, 4}) {
    ProcessSet job = start(ranks, {DDP_PROCESS_TESTS}, "train_rank");
    ASSERT_TRUE(job.wait_all(in_seconds(80))) << job.report();
    EXPECT_TRUE(job.all_succeeded()) << job.report();
  }
}

TEST_P(MpiTraining, BackwardThrowsAnErrorThatNamesTheLostPeer) {
  // mpirun ends when a process was killed, and the output of the survivors is usually lost with it.
  if (GetParam() == "mpich") GTEST_SKIP() << "the mpirun of MPICH may drop the output of the survivors";
  const std::vector<std::string> keep_others =
      GetParam() == "openmpi"
          ? std::vector<std::string>{"--mca", "orte_abort_on_non_zero_status", "0", "--enable-recovery"}
          : std::vector<std::string>{"-disable-auto-cleanup"};
  ProcessSet job = start(3, {DDP_PROCESS_TESTS}, "doomed_rank", keep_others);
  ASSERT_TRUE(job.wait_all(in_seconds(60))) << job.report();
  EXPECT_THAT(job.output(0), AllOf(HasSubstr("backward threw: peer_lost"), HasSubstr("rank 1 (host"))) << job.report();
}

// The losses that an example prints, without and with MPI.
std::string losses(const std::string& output) {
  std::istringstream lines(output);
  std::string result;
  for (std::string line; std::getline(lines, line);) {
    if (line.find("loss") != std::string::npos) result += line + "\n";
  }
  return result;
}

TEST_P(MpiTraining, AnExampleLearnsTheSameAsOnOurOwnEngine) {
  ProcessSet ours = start_program(2, {EXAMPLE}, {.environment = {{"OMP_NUM_THREADS", "1"}}});
  ProcessSet job = start(2, {EXAMPLE}, "");
  ASSERT_TRUE(ours.wait_all(in_seconds(60))) << ours.report();
  ASSERT_TRUE(job.wait_all(in_seconds(60))) << job.report();
  EXPECT_TRUE(job.all_succeeded()) << job.report();
  EXPECT_THAT(job.output(0), HasSubstr("2 replicas, bit-identical"));
  EXPECT_FALSE(losses(ours.output(0)).empty());
  EXPECT_EQ(losses(job.output(0)), losses(ours.output(0)));
}

}  // namespace
}  // namespace lockstep::testing
