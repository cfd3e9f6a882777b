#include "transport/topology.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

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

// The control peers of each rank, if each of `hosts` hosts has `per_host` ranks.
std::vector<std::vector<int>> all_control_peers(int hosts, int per_host) {
  std::vector<std::vector<int>> peers;
  for (int rank = 0; rank < hosts * per_host; ++rank) {
    std::vector<Member> members;
    for (int r = 0; r < hosts * per_host; ++r) members.push_back({.rank = r, .host = "", .host_index = r / per_host});
    peers.push_back(control_peers(make_topology(rank, std::move(members))));
  }
  return peers;
}

TEST(ControlPeers, RanksOfAHostAreLinkedToItsFirst) {
  EXPECT_EQ(all_control_peers(1, 4), (std::vector<std::vector<int>>{{1, 2, 3}, {0}, {0}, {0}}));
}

TEST(ControlPeers, FirstRanksOfFewHostsAreAllLinked) {
  EXPECT_EQ(all_control_peers(2, 2), (std::vector<std::vector<int>>{{1, 2}, {0}, {0, 3}, {2}}));
  EXPECT_EQ(all_control_peers(16, 1)[3].size(), 15U);
}

TEST(ControlPeers, FirstRanksOfManyHostsAreLinkedAtDistancesOfPowersOfTwo) {
  EXPECT_EQ(all_control_peers(17, 1)[0], (std::vector<int>{1, 2, 4, 8, 9, 13, 15, 16}));
}

TEST(ControlPeers, AreMutualAndGrowLikeTheLogarithmOfHosts) {
  for (const int hosts : {1, 2, 5, 17, 64, 100}) {
    const auto peers = all_control_peers(hosts, 3);
    for (int rank = 0; rank < static_cast<int>(peers.size()); ++rank) {
      for (const int peer : peers[static_cast<std::size_t>(rank)]) {
        const auto& back = peers[static_cast<std::size_t>(peer)];
        EXPECT_NE(std::find(back.begin(), back.end(), rank), back.end()) << rank << " and " << peer;
      }
    }
    int logarithm = 0;
    while ((1 << logarithm) < hosts) ++logarithm;
    EXPECT_LE(static_cast<int>(peers[0].size()), 2 + 2 * logarithm + 1) << hosts;
  }
}

}  // namespace
}  // namespace lockstep
