// Checks promised times, so it runs alone.
#include <gtest/gtest.h>

#include <algorithm>

#include "launch/launcher.h"

namespace lockstep::testing {
namespace {

TEST(LaunchSpeed, SixtyFourRanksStartAndEndWithinTwoSeconds) {
  double best = 1e9;
  for (int attempt = 0; attempt < 3 && best >= 2; ++attempt) {
    const auto start = Deadline::Clock::now();
    Launcher launcher({"--nproc-per-node", "64", "true"});
    ASSERT_EQ(launcher.wait(), 0) << launcher.report();
    best = std::min(best, std::chrono::duration<double>(Deadline::Clock::now() - start).count());
  }
  EXPECT_LT(best, 2.0);
}

}  // namespace
}  // namespace lockstep::testing
