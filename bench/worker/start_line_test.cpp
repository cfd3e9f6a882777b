#include "bench/worker/start_line.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace lockstep::bench {
namespace {

class StartLineOf : public ::testing::TestWithParam<bool> {};

TEST_P(StartLineOf, NoRankStartsBeforeAllHaveArrived) {
  constexpr int kRanks = 3;
  constexpr int kTimes = 20;  // each may cost a time slice of a busy machine
  SharedPage page{};
  std::vector<int> written(kRanks);  // plain, so that a sanitizer sees a missing order
  std::vector<std::vector<std::int64_t>> starts(kRanks);
  std::atomic<int> too_early = 0;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([&, rank] {
      StartLine line(page, kRanks, GetParam());
      for (int i = 1; i <= kTimes; ++i) {
        written[static_cast<std::size_t>(rank)] = i;
        starts[static_cast<std::size_t>(rank)].push_back(line.arrive());
        for (const int other : written) too_early += other != i;
        line.arrive();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(too_early, 0);
  EXPECT_EQ(starts[0], starts[1]);
  EXPECT_EQ(starts[0], starts[2]);
}

INSTANTIATE_TEST_SUITE_P(SpinningOrYielding, StartLineOf, ::testing::Bool());

TEST(StartLine, WaitsForTheMomentAgreedOn) {
  const std::int64_t start = now_ns() + 2'000'000;
  StartLine::wait_for(start);
  EXPECT_GE(now_ns(), start);
}

}  // namespace
}  // namespace lockstep::bench
