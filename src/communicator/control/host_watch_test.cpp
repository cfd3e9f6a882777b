#include "communicator/control/host_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/shared_memory.h"

namespace lockstep {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Three ranks of a host, seen by one of them; time passes in steps of an interval.
class HostWatchTest : public ::testing::Test {
 protected:
  explicit HostWatchTest(int me = 0) : topology_(topology(me)) {
    std::shared_ptr<SharedMemory> memory = value_or_throw(SharedMemory::create(HostArena::bytes(3, 3), "test"));
    arena_ = HostArena(memory, memory->data(), 3, 3);
    watch_.emplace(topology_, arena_, 10s, 1s, 60s);
  }
  static Topology topology(int me) {
    std::vector<Member> members;
    for (int rank = 0; rank < 3; ++rank) members.push_back({.rank = rank, .host = "node", .pid = 100 + rank});
    return make_topology(me, std::move(members));
  }
  // Ranks that are reported while `seconds` pass; `alive` beat every second.
  std::vector<int> silent_after(int seconds, std::initializer_list<int> alive) {
    std::vector<int> silent;
    for (int i = 0; i < seconds; ++i) {
      now_ += 1s;
      for (const int rank : alive) ++arena_.state(rank).beats;
      watch_->turn(now_, [&](int rank, Deadline::Duration) { silent.push_back(rank); });
    }
    return silent;
  }

  const Topology topology_;
  HostArena arena_;
  std::optional<HostWatch> watch_;
  HostWatch::TimePoint now_{1000s};
};

TEST_F(HostWatchTest, TheFirstRankReportsASilentOneOnce) {
  EXPECT_THAT(silent_after(5, {1, 2}), IsEmpty());
  EXPECT_THAT(silent_after(9, {1}), IsEmpty()) << "not yet for the peer timeout";
  EXPECT_THAT(silent_after(20, {1}), ElementsAre(2));
}

// Ranks return from forming the group at different times: the last one may take as long as forming may.
TEST_F(HostWatchTest, ARankThatHasNotBeatenYetHasAsLongAsFormingMayTake) {
  EXPECT_THAT(silent_after(50, {1}), IsEmpty());
  EXPECT_THAT(silent_after(5, {1, 2}), IsEmpty());
  EXPECT_THAT(silent_after(20, {1}), ElementsAre(2)) << "from its first beat on, the peer timeout counts";
}

TEST_F(HostWatchTest, ARankThatNeverBeatsIsReportedInTheEnd) {
  EXPECT_THAT(silent_after(60, {1}), IsEmpty());
  EXPECT_THAT(silent_after(5, {1}), ElementsAre(2));
}

TEST_F(HostWatchTest, ARankThatLeftIsNotSilent) {
  silent_after(2, {1, 2});
  arena_.state(2).left = 1;
  EXPECT_THAT(silent_after(30, {1}), IsEmpty());
}

TEST_F(HostWatchTest, ARankThatWasItselfStoppedGivesTheOthersTime) {
  silent_after(2, {1, 2});
  now_ += 60s;
  EXPECT_THAT(silent_after(9, {}), IsEmpty());
  EXPECT_THAT(silent_after(5, {1}), ElementsAre(2)) << "and then watches on";
}

TEST_F(HostWatchTest, BeatsOnceInEachInterval) {
  const auto none = [](int, Deadline::Duration) {};
  const auto next = watch_->turn(now_, none);
  EXPECT_EQ(next, now_ + 1s);
  EXPECT_EQ(watch_->turn(now_ + 300ms, none), next);
  EXPECT_EQ(arena_.state(0).beats, 1U);
}

class OtherRankWatch : public HostWatchTest {
 protected:
  OtherRankWatch() : HostWatchTest(1) {}
};

TEST_F(OtherRankWatch, WatchesTheFirstRankOnly) {
  silent_after(2, {0, 2});
  EXPECT_THAT(silent_after(30, {0}), IsEmpty());
  EXPECT_THAT(silent_after(30, {}), ElementsAre(0));
}

TEST_F(OtherRankWatch, WatchesTheOthersOnceTheFirstRankHasLeft) {
  silent_after(2, {0, 2});
  arena_.state(0).left = 1;
  EXPECT_THAT(silent_after(5, {2}), IsEmpty());
  EXPECT_THAT(silent_after(30, {}), ElementsAre(2));
}

}  // namespace
}  // namespace lockstep
