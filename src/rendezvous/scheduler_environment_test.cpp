#include "rendezvous/scheduler_environment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using Variables = std::map<std::string, std::string>;

Environment environment_of(Variables variables) {
  return [variables = std::move(variables)](const char* name) -> std::optional<std::string> {
    const auto entry = variables.find(name);
    if (entry == variables.end()) return std::nullopt;
    return entry->second;
  };
}

Variables changed(Variables variables, const Variables& changes) {
  for (const auto& [name, value] : changes) variables[name] = value;
  return variables;
}
Variables without(Variables variables, const std::string& name) {
  variables.erase(name);
  return variables;
}

Placement place(const Variables& variables) {
  const auto placement = find_placement({}, environment_of(variables));
  EXPECT_TRUE(placement.ok()) << placement.status().message();
  return placement.ok() ? *placement : Placement();
}

std::string scheduler_error_of(const Variables& variables) {
  const auto placement = find_placement({}, environment_of(variables));
  EXPECT_FALSE(placement.ok());
  return placement.status().message();
}

// A task of `srun -N 3 -n 6` in job 4711.
const Variables kSlurm = {{"SLURM_JOB_ID", "4711"},
                          {"SLURM_STEP_ID", "2"},
                          {"SLURM_PROCID", "3"},
                          {"SLURM_STEP_NUM_TASKS", "6"},
                          {"SLURM_NTASKS", "8"},
                          {"SLURM_LOCALID", "1"},
                          {"SLURM_STEP_NUM_NODES", "3"},
                          {"SLURM_NNODES", "4"},
                          {"SLURM_STEP_NODELIST", "node[07-09]"},
                          {"SLURM_JOB_NODELIST", "node[06-09]"},
                          {"SLURM_LAUNCH_NODE_IPADDR", "10.9.9.9"}};
// A process of `mpirun -n 4` on one host.
const Variables kOpenMpi = {{"OMPI_COMM_WORLD_RANK", "2"},
                            {"OMPI_COMM_WORLD_SIZE", "4"},
                            {"OMPI_COMM_WORLD_LOCAL_RANK", "2"},
                            {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"},
                            {"PMIX_NAMESPACE", "1938096129"}};
// A process of MPICH's `mpiexec -n 4` on one host.
const Variables kMpich = {{"PMI_RANK", "1"}, {"PMI_SIZE", "4"}, {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "4"}};

TEST(SchedulerEnvironment, ATaskOfSrunIsARankOfItsStep) {
  const auto placement = place(kSlurm);
  EXPECT_EQ(placement.scheduler, "Slurm");
  EXPECT_EQ(placement.rank, 3);
  EXPECT_EQ(placement.world_size, 6);
  EXPECT_EQ(placement.master_host, "node07");
  EXPECT_EQ(placement.master_port, 10000 + (16 * 4711 + 2) % 20000);
  const auto found = find_scheduler_placement(environment_of(kSlurm));
  ASSERT_TRUE(found.ok() && *found);
  EXPECT_EQ((*found)->local_rank, 1);
}

TEST(SchedulerEnvironment, OneHostMeetsOnLoopback) {
  EXPECT_EQ(place(changed(kSlurm, {{"SLURM_STEP_NUM_NODES", "1"}})).master_host, "127.0.0.1");
  EXPECT_EQ(place(kOpenMpi).master_host, "127.0.0.1");
  EXPECT_EQ(place(kMpich).master_host, "127.0.0.1");
}

TEST(SchedulerEnvironment, TheShellOfABatchJobIsNotARank) {
  const Variables shell = {{"SLURM_JOB_ID", "4711"}, {"SLURM_NTASKS", "1"}, {"SLURM_PROCID", "0"}};
  EXPECT_THAT(scheduler_error_of(shell), AllOf(HasSubstr("not set: RANK"), HasSubstr("inside job 4711 of Slurm"),
                                               HasSubstr("start the program with `srun`")));
  // Slurm's numbers for the batch script and for an interactive shell.
  EXPECT_THAT(scheduler_error_of(changed(shell, {{"SLURM_STEP_ID", "4294967291"}})), HasSubstr("inside job 4711"));
  EXPECT_THAT(scheduler_error_of(changed(shell, {{"SLURM_STEP_ID", "4294967290"}})), HasSubstr("inside job 4711"));
  EXPECT_THAT(scheduler_error_of({}), Not(HasSubstr("Slurm")));
}

TEST(SchedulerEnvironment, IsLaunchedIfALauncherDefinesTheRank) {
  for (const auto& variables : {kSlurm, kOpenMpi, kMpich, Variables{{"RANK", "0"}}, Variables{{"WORLD_SIZE", "1"}}}) {
    EXPECT_TRUE(is_launched(environment_of(variables)));
  }
  EXPECT_TRUE(is_launched(environment_of(changed(kSlurm, {{"SLURM_PROCID", "x"}}))));
  EXPECT_FALSE(is_launched(environment_of({})));
  EXPECT_FALSE(is_launched(environment_of({{"SLURM_JOB_ID", "4711"}, {"SLURM_NTASKS", "1"}, {"SLURM_PROCID", "0"}})));
}

TEST(SchedulerEnvironment, TheUsersVariablesTakePrecedence) {
  const auto by_hand = place(
      changed(kSlurm, {{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", "29400"}}));
  EXPECT_EQ(by_hand.scheduler, "");
  EXPECT_EQ(by_hand.world_size, 2);
  EXPECT_EQ(by_hand.master_port, 29400);
  const auto other_master = place(changed(kSlurm, {{"MASTER_ADDR", "login"}, {"MASTER_PORT", "29400"}}));
  EXPECT_EQ(other_master.rank, 3);
  EXPECT_EQ(other_master.master_host, "login");
  EXPECT_EQ(other_master.master_port, 29400);
  EXPECT_EQ(place(changed(kSlurm, {{"MASTER_PORT", "29400"}})).master_host, "node07");
  // Setting only half of them is a mistake, not a request to take the rest from Slurm.
  EXPECT_THAT(scheduler_error_of(changed(kSlurm, {{"RANK", "0"}})), HasSubstr("not set: WORLD_SIZE"));
  const auto in_code = find_placement({.rank = 0, .world_size = 1}, environment_of(kSlurm));
  ASSERT_TRUE(in_code.ok());
  EXPECT_EQ(in_code->world_size, 1);
}

TEST(SchedulerEnvironment, OpenMpi) {
  const auto placement = place(kOpenMpi);
  EXPECT_EQ(placement.scheduler, "Open MPI");
  EXPECT_EQ(placement.rank, 2);
  EXPECT_EQ(placement.world_size, 4);
  EXPECT_EQ(placement.master_port, port_of_job("1938096129", 0));
}

TEST(SchedulerEnvironment, Pmi) {
  const auto placement = place(kMpich);
  EXPECT_EQ(placement.scheduler, "PMI");
  EXPECT_EQ(placement.rank, 1);
  EXPECT_EQ(placement.world_size, 4);
  EXPECT_EQ(placement.master_port, 29500);
  EXPECT_EQ(place(changed(kMpich, {{"PMI_JOBID", "77"}})).master_port, 10000 + 16 * 77);
}

TEST(SchedulerEnvironment, SeveralHostsWithoutAListNeedMasterAddr) {
  const auto several = changed(kOpenMpi, {{"OMPI_COMM_WORLD_LOCAL_SIZE", "3"}});
  EXPECT_THAT(
      scheduler_error_of(several),
      AllOf(HasSubstr("Open MPI started this process as rank 2 of 4 on several hosts"), HasSubstr("set MASTER_ADDR")));
  EXPECT_EQ(place(changed(several, {{"MASTER_ADDR", "a"}})).master_host, "a");
  EXPECT_EQ(place(changed(several, {{"SLURM_JOB_NODELIST", "b[1-2]"}})).master_host, "b1");
  EXPECT_THAT(scheduler_error_of(without(without(kMpich, "MPI_LOCALNRANKS"), "MPI_LOCALRANKID")),
              HasSubstr("set MASTER_ADDR"));
}

TEST(SchedulerEnvironment, TheInnerLauncherCounts) {
  // mpirun starts a daemon on each host with srun: its children inherit the daemon's variables.
  EXPECT_EQ(place(changed(kSlurm, kOpenMpi)).scheduler, "Open MPI");
  EXPECT_EQ(place(changed(kSlurm, kMpich)).scheduler, "PMI");
  // srun --mpi=pmi2 sets the same values in both ways.
  EXPECT_EQ(place(changed(kSlurm, {{"PMI_RANK", "3"}, {"PMI_SIZE", "6"}})).scheduler, "Slurm");
}

TEST(SchedulerEnvironment, PartialAndContradictoryVariablesAreNamed) {
  EXPECT_THAT(scheduler_error_of(without(kSlurm, "SLURM_PROCID")),
              AllOf(HasSubstr("a job of Slurm"), HasSubstr("SLURM_PROCID is not set")));
  EXPECT_THAT(scheduler_error_of({{"OMPI_COMM_WORLD_RANK", "0"}}), HasSubstr("OMPI_COMM_WORLD_SIZE is not set"));
  EXPECT_THAT(scheduler_error_of({{"PMI_SIZE", "2"}}), HasSubstr("PMI_RANK is not set"));
  EXPECT_THAT(scheduler_error_of(changed(kSlurm, {{"SLURM_PROCID", "6"}})),
              HasSubstr("SLURM_PROCID is 6, but SLURM_STEP_NUM_TASKS is 6; expected a rank from 0 to 5"));
  EXPECT_THAT(scheduler_error_of(changed(kSlurm, {{"SLURM_PROCID", "x"}})),
              HasSubstr("SLURM_PROCID is 'x'; expected a whole"));
  EXPECT_THAT(scheduler_error_of(changed(kSlurm, {{"SLURM_STEP_NUM_NODES", "7"}})),
              HasSubstr("6 ranks are on 7 hosts"));
  EXPECT_THAT(scheduler_error_of(changed(kSlurm, {{"SLURM_STEP_NODELIST", "node[07-"}})),
              AllOf(HasSubstr("SLURM_STEP_NODELIST"), HasSubstr("brackets do not match")));
  EXPECT_THAT(scheduler_error_of(changed(kOpenMpi, {{"OMPI_COMM_WORLD_LOCAL_RANK", "4"}})),
              HasSubstr("OMPI_COMM_WORLD_LOCAL_RANK is 4, but there are 4 ranks on this host"));
  EXPECT_THAT(scheduler_error_of(changed(kMpich, {{"MPI_LOCALNRANKS", "5"}})),
              HasSubstr("MPI_LOCALNRANKS is 5, but PMI_SIZE is 4"));
}

TEST(SchedulerEnvironment, PortsDependOnTheJobAndStayInTheirRange) {
  EXPECT_NE(port_of_job("1", 0), port_of_job("2", 0));
  EXPECT_NE(port_of_job("1", 0), port_of_job("1", 1));
  EXPECT_NE(port_of_job("prterun-a-1@1", 0), port_of_job("prterun-a-2@1", 0));
  for (const auto* job : {"1", "18446744073709551615", "99999999999999999999999", "text"}) {
    EXPECT_GE(port_of_job(job, 0xFFFFFFEF), 10000);
    EXPECT_LT(port_of_job(job, 0xFFFFFFEF), 30000);
  }
  EXPECT_EQ(port_of_job("", 3), 29500);
}

}  // namespace
}  // namespace lockstep
