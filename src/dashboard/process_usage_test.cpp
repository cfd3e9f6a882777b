#include "dashboard/process_usage.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>

namespace lockstep::dashboard {
namespace {

TEST(ProcessUsage, ParsesAStatWhoseNameHasSpacesAndParentheses) {
  const auto usage = parse_stat(
      "4711 (a) b (c) S 1 4711 4711 0 -1 4194304 100 0 0 0 250 150 0 0 20 0 7 0 12345 1000000 2048 "
      "18446744073709551615 "
      "1 1 0 0 0 0\n",
      100, 4096);
  ASSERT_TRUE(usage);
  EXPECT_DOUBLE_EQ(usage->cpu_seconds, 4.0);
  EXPECT_EQ(usage->threads, 7);
  EXPECT_EQ(usage->resident_bytes, 2048U * 4096U);
}

TEST(ProcessUsage, RefusesWhatIsNoStat) {
  EXPECT_FALSE(parse_stat("", 100, 4096));
  EXPECT_FALSE(parse_stat("1 (a) S 1 2 3", 100, 4096));
  EXPECT_FALSE(parse_stat("1 (a) S x 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21", 100, 4096));
}

TEST(ProcessUsage, SeesThisProcessComputing) {
  const auto before = read_usage(::getpid());
  ASSERT_TRUE(before);
  EXPECT_GE(before->threads, 1);
  EXPECT_GT(before->resident_bytes, 100'000U);
  auto after = before;
  const auto begin = std::chrono::steady_clock::now();
  while (after->cpu_seconds <= before->cpu_seconds &&
         std::chrono::steady_clock::now() - begin < std::chrono::seconds(20))
    after = read_usage(::getpid());
  EXPECT_GT(after->cpu_seconds, before->cpu_seconds);
}

TEST(ProcessUsage, IsNothingForAProcessThatDoesNotExist) { EXPECT_FALSE(read_usage(-5)); }

}  // namespace
}  // namespace lockstep::dashboard
