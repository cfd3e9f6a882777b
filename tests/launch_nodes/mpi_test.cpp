// Programs that mpirun starts, without `lockstep run`: each process finds its rank by itself. In a network
// namespace of their own, because MPICH does not expose the id of a job, so that all its jobs meet at one port.
#include <gmock/gmock.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "support/hosts.h"
#include "support/process_set.h"

namespace lockstep::testing {
namespace {

using ::testing::HasSubstr;

bool is_installed(const std::string& command) { return ::access(("/usr/bin/" + command).c_str(), X_OK) == 0; }

// An environment without rank variables, except those that the launcher adds.
StartOptions without_ranks(const HostSet& hosts) {
  StartOptions options;
  for (const char* name : {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "LOCKSTEP_STORE_FD"}) {
    options.environment[name] = std::nullopt;
  }
  options.hosts = &hosts;
  return options;
}

void expect_four_ranks(const HostSet& hosts, std::vector<std::string> command) {
  command.emplace_back(SUM_RANK);
  ProcessSet launcher = start_program(1, command, without_ranks(hosts));
  ASSERT_TRUE(launcher.wait_all(in_seconds(50))) << launcher.report();
  ASSERT_TRUE(launcher.all_succeeded()) << launcher.report();
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_THAT(launcher.output(0), HasSubstr("rank " + std::to_string(rank) + " of 4: sum 10"));
  }
}

TEST(Mpi, RanksOfOpenMpiFindEachOther) {
  if (!is_installed("mpirun.openmpi")) GTEST_SKIP() << "Open MPI is not installed (openmpi-bin)";
  LOCKSTEP_MAKE_HOSTS_OR_SKIP(hosts, 1);
  expect_four_ranks(hosts, {"mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "-n", "4"});
}

TEST(Mpi, RanksOfMpichFindEachOther) {
  if (!is_installed("mpiexec.mpich")) GTEST_SKIP() << "MPICH is not installed (mpich)";
  LOCKSTEP_MAKE_HOSTS_OR_SKIP(hosts, 1);
  expect_four_ranks(hosts, {"mpiexec.mpich", "-launcher", "fork", "-n", "4"});
}

}  // namespace
}  // namespace lockstep::testing
