#include "transport/topology.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep {
namespace {

using ::testing::ElementsAre;

std::vector<Member> members(const std::vector<std::string>& machines, int processors) {
  std::vector<Member> all;
  for (const std::string& machine : machines) {
    const int rank = static_cast<int>(all.size());
    all.push_back({.rank = rank, .host = "h", .host_index = rank, .machine = machine, .processors = processors});
  }
  return all;
}

TEST(Topology, NumbersHostsByTheirFirstRank) {
  const Topology topology = make_topology(2, {{.rank = 0, .host = "h", .host_index = 7},
                                              {.rank = 1, .host = "i", .host_index = 3},
                                              {.rank = 2, .host = "h", .host_index = 7}});
  EXPECT_THAT(topology.hosts, ElementsAre(ElementsAre(0, 2), ElementsAre(1)));
  EXPECT_EQ(topology.me().host_index, 0);
  EXPECT_EQ(topology.local_rank(), 1);
  EXPECT_EQ(topology.local_size(), 2);
}

TEST(Topology, IsOversubscribedIfAMachineHasMoreRanksThanProcessors) {
  EXPECT_FALSE(make_topology(0, members({"a", "a", "b", "b"}, 2)).oversubscribed);
  EXPECT_TRUE(make_topology(0, members({"a", "b", "a", "a"}, 2)).oversubscribed);
  EXPECT_FALSE(make_topology(0, members({"a", "b", "a", "a"}, 4)).oversubscribed);
}

TEST(Topology, IsNotOversubscribedIfMachineOrProcessorsAreUnknown) {
  EXPECT_FALSE(make_topology(0, members({"", "", ""}, 2)).oversubscribed);
  EXPECT_FALSE(make_topology(0, members({"a", "a", "a"}, 0)).oversubscribed);
}

TEST(Topology, IsOversubscribedOnAllRanksIfItIsOnOneThatSeesFewerProcessors) {
  auto some = members({"a", "a", "a"}, 64);
  some[1].processors = 2;
  for (int rank = 0; rank < 3; ++rank) EXPECT_TRUE(make_topology(rank, some).oversubscribed);
}

}  // namespace
}  // namespace lockstep
