// Jobs that a real mpirun starts, on each MPI. docs/mpi.md names these tests.
#include <gmock/gmock.h>
#include <signal.h>

#include "mpi/mpirun.h"

namespace lockstep::testing {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;

class MpiJob : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (!is_installed(GetParam())) GTEST_SKIP() << "mpirun." << GetParam() << " is not installed";
    if (program().empty())
      GTEST_SKIP() << "there is no plug-in for " << GetParam() << " (its development package was missing)";
  }

  static std::string program() {
#ifdef MPI_PROGRAM_openmpi
    if (GetParam() == "openmpi") return MPI_PROGRAM_openmpi;
#endif
#ifdef MPI_PROGRAM_mpich
    if (GetParam() == "mpich") return MPI_PROGRAM_mpich;
#endif
    return "";
  }

  // The other ranks must handle a process that dies, not mpirun.
  static std::vector<std::string> keep_others() {
    if (GetParam() == "openmpi") return {"--mca", "orte_abort_on_non_zero_status", "0", "--enable-recovery"};
    return {"-disable-auto-cleanup"};
  }

  // The output of all ranks, once all have ended. `succeeds`: mpirun's exit code is 0.
  static std::string output_of(ProcessSet job, bool succeeds = true) {
    EXPECT_TRUE(job.wait_all(in_seconds(60))) << job.report();
    EXPECT_TRUE(!succeeds || job.all_succeeded()) << job.report();
    return job.output(0) + job.error_output(0);
  }
  static std::string ranks_do(const std::string& part, int ranks, const std::vector<std::string>& options = {},
                              bool succeeds = true) {
    return output_of(mpirun(GetParam(), ranks, {MPI_RANK, part}, options), succeeds);
  }
};
INSTANTIATE_TEST_SUITE_P(Mpis, MpiJob, ::testing::Values("openmpi", "mpich"),
                         [](const auto& info) { return info.param; });

TEST_P(MpiJob, CollectivesOfEveryTypeAndOperation) {
  for (const int size : {2, 4}) {
    const std::string output = ranks_do("collectives", size);
    for (int rank = 0; rank < size; ++rank) {
      EXPECT_THAT(output, HasSubstr("rank " + std::to_string(rank) + " of " + std::to_string(size) + ": all right"));
    }
  }
}

TEST_P(MpiJob, AProcessMayFormTheDefaultGroupAgain) { EXPECT_THAT(ranks_do("again", 2), HasSubstr("formed again")); }

TEST_P(MpiJob, AnIdleRankDoesNotCompute) { EXPECT_THAT(ranks_do("idles", 2), HasSubstr("cpu 0.0")); }

TEST_P(MpiJob, AProgramMayEndWithoutDestroyingItsGroup) { EXPECT_THAT(ranks_do("forgets", 2), HasSubstr("done")); }

TEST_P(MpiJob, AKilledRankIsNamed) {
  // mpirun ends when a process was killed, and the output of the survivors is usually lost with it.
  if (GetParam() == "mpich") GTEST_SKIP() << "the mpirun of MPICH may drop the output of the survivors";
  const std::string output = ranks_do("killed", 3, keep_others(), false);
  for (const std::string rank : {"0", "2"}) {
    EXPECT_THAT(output,
                AllOf(HasSubstr("rank " + rank + " threw peer_lost"), HasSubstr("rank " + rank + " later: peer_lost")));
  }
  EXPECT_THAT(output, AllOf(HasSubstr("rank 1 (host"), HasSubstr("pid")));
}

TEST_P(MpiJob, AStoppedRankIsNamed) {
  ProcessSet job = mpirun(GetParam(), 3, {MPI_RANK, "stopped"}, keep_others());
  EXPECT_TRUE(job.wait_for_line(0, "rank 0 threw", in_seconds(40))) << job.report();
  EXPECT_TRUE(job.wait_for_line(0, "rank 2 threw", in_seconds(40))) << job.report();
  const std::string output = job.output(0);
  EXPECT_THAT(output, AllOf(HasSubstr("peer_lost"), HasSubstr("rank 1 (host")));
  const std::size_t at = output.find("pid of rank 1: ");
  ASSERT_NE(at, std::string::npos);
  ::kill(std::stoi(output.substr(at + 15)), SIGKILL);
  EXPECT_TRUE(job.wait_all(in_seconds(30))) << job.report();
}

TEST_P(MpiJob, AbortReachesEveryRankWithItsReason) {
  const std::string output = ranks_do("aborted", 3, keep_others(), false);
  for (const char* rank : {"0", "1", "2"})
    EXPECT_THAT(output, HasSubstr(std::string("rank ") + rank + " threw aborted"));
  EXPECT_THAT(output, AllOf(HasSubstr("rank 1 (host"), HasSubstr("aborted the group: the loss is not a number")));
}

TEST_P(MpiJob, ADeadlineNamesTheMissingRanks) {
  const std::string output = ranks_do("late", 3, keep_others(), false);
  EXPECT_THAT(output, AllOf(HasSubstr("barrier #4 on rank "), HasSubstr("reached its deadline"),
                            HasSubstr("rank 2 (host"), HasSubstr("did not reach this operation")));
  for (const char* rank : {"0", "1", "2"}) EXPECT_THAT(output, HasSubstr(std::string("rank ") + rank + " threw "));
}

TEST_P(MpiJob, RanksThatDisagreeAreNamedOrMpiReportsIt) {
  const std::string output = ranks_do("different", 3, keep_others(), false);
  EXPECT_THAT(output, AnyOf(HasSubstr("ranks called different operations"), HasSubstr("MPI returned error"))) << output;
  for (const char* rank : {"0", "1", "2"}) EXPECT_THAT(output, HasSubstr(std::string("rank ") + rank + " threw "));
}

TEST_P(MpiJob, ARankThatLeavesEarlyIsNamed) {
  const std::string output = ranks_do("leaves", 3, keep_others(), false);
  for (const char* rank : {"0", "2"}) EXPECT_THAT(output, HasSubstr(std::string("rank ") + rank + " threw "));
  EXPECT_THAT(output, HasSubstr("rank 1 (host"));
}

TEST_P(MpiJob, AnErrorOfMpiReachesEveryRank) {
  const std::string output = ranks_do("truncated", 3, keep_others(), false);
  EXPECT_THAT(output,
              AllOf(HasSubstr("recv of 10 f32 from rank 0 with tag 0: MPI returned error"), HasSubstr("runcat")));
  for (const char* rank : {"1", "2"}) EXPECT_THAT(output, HasSubstr(std::string("rank ") + rank + " threw "));
}

TEST_P(MpiJob, ProcessesThatDoNotAskForTheBackendAreReportedAsMissing) {
  const std::string output = ranks_do("not_all", 3, keep_others(), false);
  const auto misses = [](const std::string& rank) { return HasSubstr("rank " + rank + ": timed_out"); };
  if (GetParam() == "openmpi") {
    EXPECT_THAT(output, AllOf(misses("0"), misses("2")));
  } else {  // MPI_Init of the others crashes when the first one ends
    EXPECT_THAT(output, AnyOf(misses("0"), misses("2")));
  }
  EXPECT_THAT(output, HasSubstr("init_process_group()"));
}

TEST_P(MpiJob, AProgramMayUseMpiBesideTheGroup) {
  EXPECT_THAT(output_of(mpirun(GetParam(), 2, {program(), "beside"})), HasSubstr("both agree"));
}

TEST_P(MpiJob, AProgramThatFinalisesMpiEndsTheGroup) {
  EXPECT_THAT(output_of(mpirun(GetParam(), 2, {program(), "finalize_first"})),
              HasSubstr("the program has finalised MPI while a process group was in use"));
}

TEST_P(MpiJob, TooLowAThreadLevelIsReportedWithWhatToDo) {
  EXPECT_THAT(output_of(mpirun(GetParam(), 2, {program(), "funneled"})),
              AllOf(HasSubstr("MPI_THREAD_FUNNELED"), HasSubstr("at least MPI_THREAD_SERIALIZED"),
                    HasSubstr("MPI_THREAD_MULTIPLE")));
}

TEST_P(MpiJob, AMissingPlugInIsReportedWithWhatToDo) {
  ProcessSet job = mpirun(GetParam(), 1, {MPI_RANK, "again"}, {}, {{"LOCKSTEP_MPI_PLUGIN", "/nowhere"}});
  EXPECT_TRUE(job.wait_all(in_seconds(30))) << job.report();
  EXPECT_THAT(job.output(0), AllOf(HasSubstr("no MPI plug-in for"), HasSubstr("LOCKSTEP_MPI_PLUGIN")));
}

}  // namespace
}  // namespace lockstep::testing
