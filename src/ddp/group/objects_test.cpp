#include "lockstep/ddp/objects.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ddp/testing/test_ranks.h"
#include "lockstep/ddp/subgroups.h"

namespace lockstep {
namespace {

using ::testing::ElementsAreArray;
using testing::Group;
using testing::run_ranks;

// Another length on each rank: empty on rank 0, and with zero bytes.
std::string value_of(int rank) {
  return std::string(static_cast<std::size_t>(rank) * 1000, static_cast<char>(rank % 2));
}

class Objects : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, Objects, ::testing::Values(1, 2, 3));

TEST_P(Objects, OfAnyLengthReachEveryRank) {
  run_ranks(GetParam(), [](const Group& group) {
    const int last = group->size() - 1;
    std::vector<std::string> all;
    for (int rank = 0; rank <= last; ++rank) all.push_back(value_of(rank));
    const TensorCallOptions on{.group = group};
    EXPECT_THAT(all_gather_object(value_of(group->rank()), on), ElementsAreArray(all));
    const auto gathered = gather_object(value_of(group->rank()), last, on);
    EXPECT_EQ(gathered, group->rank() == last ? all : std::vector<std::string>{});
    EXPECT_EQ(broadcast_object(group->rank() == last ? "from the last" : "ignored", last, on), "from the last");
    EXPECT_EQ(broadcast_object("", 0, on), "");
  });
}

TEST(ObjectsOfOthers, OnAGroupOfOtherRanksNothingHappens) {
  run_ranks(2, [](const Group& group) {
    const int first[] = {0};
    const auto alone = group->new_group(first, "alone");
    const auto values = all_gather_object("x", {.group = alone});
    EXPECT_EQ(values.size(), group->rank() == 0 ? 1U : 0U);
    EXPECT_EQ(broadcast_object("y", 0, {.group = alone}), group->rank() == 0 ? "y" : "");
  });
}

}  // namespace
}  // namespace lockstep
