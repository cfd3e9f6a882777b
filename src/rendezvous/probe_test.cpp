#include "rendezvous/probe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/net/socket.h"
#include "rendezvous/process_identity.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;

TEST(Partition, RanksThatReachTheSameRankShareAHost) {
  EXPECT_THAT(partition_into_hosts({0}), ElementsAre(0));
  EXPECT_THAT(partition_into_hosts({0, 0, 0}), ElementsAre(0, 0, 0));
  EXPECT_THAT(partition_into_hosts({0, 1, 2}), ElementsAre(0, 1, 2));
  EXPECT_THAT(partition_into_hosts({0, 0, 2, 2}), ElementsAre(0, 0, 2, 2));
  EXPECT_THAT(partition_into_hosts({0, 1, 0, 1}), ElementsAre(0, 1, 0, 1));
}

TEST(Partition, ReachingOnlySomeRanksOfAHostIsNotEnough) {
  EXPECT_THAT(partition_into_hosts({0, 0, 1}), ElementsAre(0, 0, 2));
  EXPECT_THAT(partition_into_hosts({0, 2, -1}), ElementsAre(0, 1, 2)) << "what no rank of this version writes";
}

class Probe : public ::testing::Test {
 protected:
  const MemberRecord self_ = claim_rank(1, 2, "");
  MemberRecord peer_ = claim_rank(0, 2, "");
  const UniqueFd listener_ = *listen_on(abstract_unix_address(peer_.unix_name));

  bool reaches() {
    const auto reached = probe(peer_, self_, Deadline::after(std::chrono::seconds(5)));
    EXPECT_TRUE(reached.ok()) << reached.status().message();
    return reached.ok() && reached->valid();
  }
};

TEST_F(Probe, FindsAProcessThatListens) { EXPECT_TRUE(reaches()); }

TEST_F(Probe, AnotherNameIsAnotherHost) {
  peer_.unix_name += "x";
  EXPECT_FALSE(reaches());
}

TEST_F(Probe, AnotherHostIdIsAnotherHost) {
  peer_.host_id = "b";
  EXPECT_FALSE(reaches());
}

TEST_F(Probe, AnotherNetworkIsAnotherHost) {
  peer_.network_space += "x";
  EXPECT_FALSE(reaches());
  peer_.network_space.clear();
  EXPECT_TRUE(reaches()) << "unknown: only trying can tell";
}

TEST_F(Probe, AnotherPidIsNotTheAnnouncedProcess) {
  peer_.pid += 1;
  EXPECT_FALSE(reaches());
}

TEST_F(Probe, PidsOfAnotherNamespaceAreNotCompared) {
  peer_.pid += 1;
  peer_.process_space = "elsewhere";
  EXPECT_TRUE(reaches());
}

}  // namespace
}  // namespace lockstep
