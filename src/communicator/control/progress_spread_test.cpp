#include "communicator/control/progress_spread.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "base/shared_memory.h"

namespace lockstep {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Rank 0 of three hosts with two ranks each; it is linked to the first ranks of the other two.
class ProgressSpreadTest : public ::testing::Test {
 protected:
  ProgressSpreadTest() {
    std::shared_ptr<SharedMemory> memory = value_or_throw(SharedMemory::create(HostArena::bytes(2, 6), "test"));
    const HostArena arena(memory, memory->data(), 2, 6);
    mine_.emplace(topology_, arena);
    rank1_.emplace(other_topology_, arena);
    spread_.emplace(topology_, *mine_, std::vector<int>{2, 4});
  }
  static Topology topology(int me) {
    std::vector<Member> members;
    for (int rank = 0; rank < 6; ++rank) members.push_back({.rank = rank, .host = "", .host_index = rank / 2});
    return make_topology(me, std::move(members));
  }
  // The ranks that each host is told of now.
  std::map<int, std::vector<int>> flush() {
    std::map<int, std::vector<int>> told;
    spread_->flush(now_, [&](int host, const ProgressReport& report) {
      for (const auto& each : report.ranks) told[host].push_back(each.rank);
    });
    return told;
  }
  static OpDescriptor operation(std::uint64_t sequence) { return {.sequence = sequence}; }

  const Topology topology_ = topology(0);
  const Topology other_topology_ = topology(1);
  std::optional<PeerProgress> mine_;
  std::optional<PeerProgress> rank1_;
  std::optional<ProgressSpread> spread_;
  const ProgressSpread::TimePoint now_{1000s};
};

TEST_F(ProgressSpreadTest, OtherHostsAreToldOnceThatARankWaits) {
  rank1_->set_waiting(operation(3));
  spread_->collect_local(false);
  EXPECT_LE(spread_->due(), now_);
  auto told = flush();
  EXPECT_THAT(told[2], ElementsAre(1));
  EXPECT_THAT(told[4], ElementsAre(1));
  spread_->collect_local(false);
  EXPECT_EQ(spread_->due(), ProgressSpread::TimePoint::max());
  EXPECT_THAT(flush(), IsEmpty());
}

TEST_F(ProgressSpreadTest, CompletedOperationsAloneAreReportedOnlyOnRequest) {
  rank1_->set_completed(operation(7));
  spread_->collect_local(false);
  EXPECT_THAT(flush(), IsEmpty());
  spread_->collect_local(true);
  EXPECT_THAT(flush()[2], ElementsAre(1));
}

TEST_F(ProgressSpreadTest, NewsIsPassedOnButNotBackToWhereItCameFrom) {
  mine_->learn({.rank = 3, .version = 2, .completed = 5, .left = false, .waiting = operation(6)});
  spread_->add(3, 2);
  auto told = flush();
  EXPECT_THAT(told[2], IsEmpty());
  EXPECT_THAT(told[4], ElementsAre(3));
}

TEST_F(ProgressSpreadTest, ChangesWithinAShortTimeAreCollected) {
  rank1_->set_waiting(operation(3));
  spread_->collect_local(false);
  flush();
  rank1_->set_waiting(std::nullopt);
  rank1_->set_left();
  spread_->collect_local(false);
  EXPECT_EQ(spread_->due(), now_ + ProgressSpread::kBetweenReports);
}

}  // namespace
}  // namespace lockstep
