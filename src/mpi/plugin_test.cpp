#include "mpi/plugin.h"

#include <dlfcn.h>
#include <gmock/gmock.h>

#include <cstdio>
#include <map>

namespace lockstep::mpi {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

Environment environment(std::map<std::string, std::string> variables) {
  return [variables = std::move(variables)](const char* name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    if (found == variables.end()) return std::nullopt;
    return found->second;
  };
}

const Environment kOpenMpi = environment({{"OMPI_COMM_WORLD_SIZE", "4"}});
const Environment kMpich = environment({{"PMI_SIZE", "4"}, {"PMI_RANK", "0"}});
const Environment kNoLauncher = environment({});
constexpr auto kOpenMpiText = "Open MPI v4.1.4, package: Debian";
constexpr auto kMpichText = "MPICH Version:\t4.0.2\nMPICH Release date: ...";

TEST(MpiPlugin, IsThatOfTheLauncher) {
  EXPECT_EQ(*choose_plugin("mpi", std::nullopt, kOpenMpi), "openmpi");
  EXPECT_EQ(*choose_plugin("mpi", std::nullopt, kMpich), "mpich");
  EXPECT_EQ(*choose_plugin("mpi", std::nullopt, kNoLauncher), "");
}

TEST(MpiPlugin, IsThatWithWhichTheProgramIsLinked) {
  EXPECT_EQ(*choose_plugin("mpi", kMpichText, kNoLauncher), "mpich");
  EXPECT_EQ(*choose_plugin("mpi", kOpenMpiText, kOpenMpi), "openmpi");
}

TEST(MpiPlugin, MayBeNamed) {
  EXPECT_EQ(*choose_plugin("mpich", std::nullopt, kNoLauncher), "mpich");
  EXPECT_EQ(*choose_plugin("openmpi", std::nullopt, kOpenMpi), "openmpi");
}

TEST(MpiPlugin, ContradictionsAreReported) {
  EXPECT_THAT(choose_plugin("mpich", std::nullopt, kOpenMpi).status().message(),
              AllOf(HasSubstr("MPICH was asked for"), HasSubstr("the mpirun of Open MPI")));
  EXPECT_THAT(choose_plugin("openmpi", kMpichText, kNoLauncher).status().message(),
              AllOf(HasSubstr("\"openmpi\""), HasSubstr("linked with MPICH")));
  EXPECT_THAT(choose_plugin("mpi", "Some other MPI 1.0", kNoLauncher).status().message(),
              HasSubstr("does not support"));
  EXPECT_THAT(choose_plugin("mpi", kMpichText, kOpenMpi).status().message(), HasSubstr("the mpirun of Open MPI"));
}

TEST(MpiPlugin, SlurmStartsAnyMpi) {
  const auto slurm = environment({{"PMI_SIZE", "4"}, {"PMI_RANK", "0"}, {"SLURM_STEP_ID", "0"}});
  EXPECT_EQ(*choose_plugin("openmpi", std::nullopt, slurm), "openmpi");
}

TEST(MpiPlugin, IsSearchedBesideTheLibraryThenInTheRunPath) {
  EXPECT_THAT(plugin_paths("mpich", "/usr/lib", {"/opt/a"}, kNoLauncher),
              ElementsAre("/usr/lib/lockstep/lockstep_mpi_mpich.so", "/opt/a/lockstep_mpi_mpich.so"));
  EXPECT_THAT(plugin_paths("mpich", "/usr/lib", {"/opt/a"}, environment({{"LOCKSTEP_MPI_PLUGIN", "/x/y.so"}})),
              ElementsAre("/x/y.so"));
  EXPECT_THAT(plugin_paths("mpich", "/usr/lib", {"/opt/a"}, environment({{"LOCKSTEP_MPI_PLUGIN", "/usr"}})),
              ElementsAre("/usr/lockstep_mpi_mpich.so"));
}

TEST(MpiPlugin, AMissingPlugInIsReportedWithWhatToDo) {
  const auto loaded = load_plugin("mpich", environment({{"LOCKSTEP_MPI_PLUGIN", "/nowhere/x.so"}}));
  EXPECT_EQ(loaded.status().code(), StatusCode::not_found);
  EXPECT_THAT(loaded.status().message(), AllOf(HasSubstr("no MPI plug-in for MPICH was built or installed"),
                                               HasSubstr("/nowhere/x.so"), HasSubstr("libmpich-dev")));
}

TEST(MpiPlugin, AnotherLibraryIsRefused) {
  Dl_info libc{};
  ASSERT_NE(::dladdr(reinterpret_cast<void*>(&std::puts), &libc), 0);
  const auto loaded = load_plugin("mpich", environment({{"LOCKSTEP_MPI_PLUGIN", libc.dli_fname}}));
  EXPECT_EQ(loaded.status().code(), StatusCode::invalid_argument);
  EXPECT_THAT(loaded.status().message(), HasSubstr("is no MPI plug-in of Lockstep"));
}

}  // namespace
}  // namespace lockstep::mpi
