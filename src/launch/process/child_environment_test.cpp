#include "launch/process/child_environment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::launch {
namespace {

using ::testing::Contains;
using ::testing::Each;
using ::testing::Not;
using ::testing::StartsWith;

Round second_of_two_nodes() {
  return {.number = 1,
          .restarts = 1,
          .node_rank = 1,
          .first_rank = 4,
          .world_size = 6,
          .master_addr = "10.0.0.1",
          .master_port = 1234,
          .nodes = {{}, {}}};
}

RankPlace local_rank_one() {
  return {.local_rank = 1,
          .nproc = 2,
          .role = "trainer",
          .run_id = "job",
          .restarts = 3,
          .max_restarts = 9,
          .store_is_served = true,
          .secret = "s",
          .threads = 4,
          .error_file = "/e.txt",
          .torch_error_file = "/e.json",
          .elastic = {}};
}

TEST(ChildEnvironment, HasAllVariablesOfTorchrun) {
  const auto variables = child_environment({"HOME=/h", "RANK=77"}, second_of_two_nodes(), local_rank_one());
  for (const char* expected : {"HOME=/h",
                               "RANK=5",
                               "LOCAL_RANK=1",
                               "WORLD_SIZE=6",
                               "LOCAL_WORLD_SIZE=2",
                               "GROUP_RANK=1",
                               "NODE_RANK=1",
                               "GROUP_WORLD_SIZE=2",
                               "ROLE_RANK=5",
                               "ROLE_NAME=trainer",
                               "ROLE_WORLD_SIZE=6",
                               "MASTER_ADDR=10.0.0.1",
                               "MASTER_PORT=1234",
                               "TORCHELASTIC_RESTART_COUNT=3",
                               "TORCHELASTIC_MAX_RESTARTS=9",
                               "TORCHELASTIC_RUN_ID=job",
                               "TORCHELASTIC_ERROR_FILE=/e.json",
                               "LOCKSTEP_ERROR_FILE=/e.txt",
                               "LOCKSTEP_SECRET=s",
                               "LOCKSTEP_STORE_IS_SERVED=1",
                               "OMP_NUM_THREADS=4",
                               "OPENBLAS_NUM_THREADS=4"}) {
    EXPECT_THAT(variables, Contains(expected));
  }
  EXPECT_THAT(variables, Not(Contains("RANK=77")));
  EXPECT_THAT(variables, Each(Not(StartsWith("LOCKSTEP_ELASTIC"))));
}

TEST(ChildEnvironment, KeepsTheUsersThreadCounts) {
  const auto variables =
      child_environment({"OMP_NUM_THREADS=3", "OPENBLAS_NUM_THREADS=2"}, second_of_two_nodes(), local_rank_one());
  EXPECT_THAT(variables, Contains("OMP_NUM_THREADS=3"));
  EXPECT_THAT(variables, Contains("OPENBLAS_NUM_THREADS=2"));
}

TEST(ChildEnvironment, RemovesVariablesOfAnOuterLauncher) {
  RankPlace place = local_rank_one();
  place.store_is_served = false;
  place.secret.clear();
  const auto variables = child_environment({"LOCKSTEP_STORE_IS_SERVED=1", "LOCKSTEP_STORE_FD=5", "LOCKSTEP_NEWCOMER=1",
                                            "LOCKSTEP_SECRET_FILE=/f", "TORCHELASTIC_USE_AGENT_STORE=True"},
                                           second_of_two_nodes(), place);
  EXPECT_THAT(variables, Each(Not(StartsWith("LOCKSTEP_STORE"))));
  EXPECT_THAT(variables, Each(Not(StartsWith("LOCKSTEP_NEWCOMER"))));
  EXPECT_THAT(variables, Each(Not(StartsWith("TORCHELASTIC_USE"))));
  EXPECT_THAT(variables, Each(Not(StartsWith("LOCKSTEP_SECRET="))));
  EXPECT_THAT(variables, Contains("LOCKSTEP_SECRET_FILE=/f"));
}

TEST(ChildEnvironment, HasTheRangeAndTheRosterForElasticRanks) {
  RankPlace place = local_rank_one();
  place.elastic = ElasticPlace{.min_ranks = 2, .max_ranks = 8, .roster_file = "/r", .newcomer = false};
  const auto founder = child_environment({}, second_of_two_nodes(), place);
  for (const char* expected :
       {"LOCKSTEP_ELASTIC=1", "LOCKSTEP_MIN_RANKS=2", "LOCKSTEP_MAX_RANKS=8", "LOCKSTEP_ROSTER=/r"})
    EXPECT_THAT(founder, Contains(expected));
  EXPECT_THAT(founder, Not(Contains("LOCKSTEP_NEWCOMER=1")));
  place.elastic->newcomer = true;
  EXPECT_THAT(child_environment({}, second_of_two_nodes(), place), Contains("LOCKSTEP_NEWCOMER=1"));
}

}  // namespace
}  // namespace lockstep::launch
