#include "ddp/elastic/state_chain.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <random>

#include "ddp/testing/test_ranks.h"

namespace lockstep::detail {
namespace {

using lockstep::testing::errors_of_ranks;
using lockstep::testing::Group;
using lockstep::testing::run_ranks;

constexpr std::int64_t kMiB = 1 << 20;

TEST(PlanSegments, EveryByteIsInOneSegmentInOrder) {
  std::mt19937 random(5);
  for (int round = 0; round < 300; ++round) {
    std::vector<std::int64_t> sizes(random() % 40);
    for (std::int64_t& size : sizes) {
      const unsigned kind = random() % 4;
      size = static_cast<std::int64_t>(kind == 0   ? 0
                                       : kind == 1 ? random() % 1000
                                                   : random() % (kind == 2 ? 600'000 : 9 * kMiB));
    }
    std::int64_t total = 0, expected = 0;
    std::size_t next = 0;
    for (const std::int64_t size : sizes) expected += size;
    for (const StateSegment& segment : plan_segments(sizes)) {
      ASSERT_LT(segment.begin, segment.end);
      ASSERT_LE(segment.end - segment.begin, 4 * kMiB);
      ASSERT_GE(segment.first, next == 0 ? 0 : next - 1);
      next = segment.last;
      total += segment.end - segment.begin;
      if (!segment.packed) continue;
      std::int64_t packed = 0;
      for (std::size_t i = segment.first; i < segment.last; ++i) packed += sizes[i];
      ASSERT_EQ(packed, segment.end);
    }
    ASSERT_EQ(total, expected);
  }
}

std::vector<at::Tensor> make_tensors(double value) {
  return {at::full({3}, value),
          at::full({5 * kMiB / 4 + 3}, value),  // several segments
          at::full({0, 4}, value),
          at::full({}, value, at::kDouble),
          at::full({2, 2}, value != 0, at::kBool),
          at::full({300'000}, value, at::kHalf),
          at::full({7}, value)};
}

TEST(StateChain, OnlyTheRanksInTheChainTakePart) {
  run_ranks(4, [](const Group& group) {
    const std::vector<at::Tensor> tensors = make_tensors(group->rank() == 2 ? 8 : 0);
    if (group->rank() != 1) {
      StateChain chain(*group, {2, 3, 0});
      EXPECT_EQ(chain.sends_first(), group->rank() == 2);
      const Bytes sent(group->rank() == 2 ? 1000 : 0, std::byte{7});
      EXPECT_EQ(chain.pass(sent, 1000), Bytes(1000, std::byte{7}));
      EXPECT_EQ(chain.pass(Bytes(), 1000), Bytes());
      chain.pass(tensors);
    }
    const std::vector<at::Tensor> expected = make_tensors(group->rank() == 1 ? 0 : 8);
    for (std::size_t i = 0; i < tensors.size(); ++i) EXPECT_TRUE(at::equal(tensors[i], expected[i])) << i;
    group->barrier({}).wait();
  });
}

TEST(StateChain, AnAnnouncementThatIsTooLargeIsRefused) {
  const auto errors = errors_of_ranks(2, [](const Group& group) {
    StateChain chain(*group, {0, 1});
    chain.pass(Bytes(group->rank() == 0 ? 1000 : 0), group->rank() == 0 ? 1000 : 999);
    group->barrier({}).wait();
  });
  EXPECT_THAT(errors[1], ::testing::HasSubstr("has 1000 bytes; at most 999 are accepted"));
}

}  // namespace
}  // namespace lockstep::detail
