// Every example runs, and prints what its text says.
#include <gmock/gmock.h>

#include <string>

#include "support/process_set.h"

namespace lockstep::testing {
namespace {

using ::testing::HasSubstr;

std::string example(const std::string& name) { return std::string(EXAMPLES_FOLDER) + "/" + name; }

TEST(Examples, AllReduceLeavesTheSumOnEveryRank) {
  ProcessSet ranks = start_program(3, {example("01_all_reduce")});
  ASSERT_TRUE(ranks.wait_all(in_seconds(60))) << ranks.report();
  ASSERT_TRUE(ranks.all_succeeded()) << ranks.report();
  EXPECT_THAT(ranks.output(0), HasSubstr("rank 0 of 3: brought 1, got 6"));
  EXPECT_THAT(ranks.output(2), HasSubstr("rank 2 of 3: brought 3, got 6"));
}

TEST(Examples, AllReduceWithoutAnEnvironmentSaysWhatIsMissing) {
  ProcessSet ranks = start_program(1, {example("01_all_reduce")}, {.environment = {{"RANK", std::nullopt}}});
  ASSERT_TRUE(ranks.wait_all(in_seconds(60))) << ranks.report();
  EXPECT_EQ(ranks.exit_status(0)->code, 1);
  EXPECT_THAT(ranks.error_output(0), HasSubstr("RANK"));
}

}  // namespace
}  // namespace lockstep::testing
