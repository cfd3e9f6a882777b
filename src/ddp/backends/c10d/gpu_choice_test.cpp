#include "ddp/backends/c10d/gpu_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::detail {
namespace {

using ::testing::HasSubstr;

TEST(GpuChoice, EveryRankOfAHostHasTheGpuOfItsLocalRank) {
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(choose_gpu({.local_rank = rank, .local_size = 4, .visible = 4}).value(), rank);
    EXPECT_EQ(choose_gpu({.local_rank = rank, .local_size = 4, .visible = 8}).value(), rank);
  }
}

TEST(GpuChoice, AProcessThatSeesOneGpuUsesIt) {
  EXPECT_EQ(choose_gpu({.local_rank = 3, .local_size = 4, .visible = 1}).value(), 0);
}

TEST(GpuChoice, FewerGpusThanRanksAreRefusedWithBothNumbers) {
  const Status status = choose_gpu({.local_rank = 0, .local_size = 4, .visible = 2}).status();
  EXPECT_THAT(status.message(), HasSubstr("4 ranks of this host see 2 GPUs"));
  EXPECT_THAT(status.message(), HasSubstr("--nproc-per-node 2"));
}

TEST(GpuChoice, HavingNoGpuIsReported) {
  const Status status = choose_gpu({.local_rank = 0, .local_size = 1, .visible = 0}).status();
  EXPECT_EQ(status.code(), StatusCode::not_found);
  EXPECT_THAT(status.message(), HasSubstr("needs a GPU, but this process sees none"));
}

TEST(GpuChoice, TwoRanksOnOneGpuAreNamed) {
  const GpuId first{1}, second{2};
  const std::vector<std::string> names = {"rank 0 (a)", "rank 1 (a)", "rank 2 (b)"};
  EXPECT_TRUE(check_distinct_gpus(std::vector<GpuId>{first, second, GpuId{3}}, names).ok());
  const Status status = check_distinct_gpus(std::vector<GpuId>{first, second, first}, names);
  EXPECT_THAT(status.message(), HasSubstr("rank 0 (a) and rank 2 (b) would use the same one"));
}

}  // namespace
}  // namespace lockstep::detail
