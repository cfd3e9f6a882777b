#include "base/net/stranger_budget.h"
#include "base/net/resolve.h"

#include <gmock/gmock.h>

#include <limits>

namespace lockstep {
namespace {

using namespace std::chrono_literals;
using ::testing::Optional;

SocketAddress from(const char* host) { return resolve(host, 0)->front(); }

class StrangerBudgetTest : public ::testing::Test {
 protected:
  void add(int fd, const char* host = "127.0.0.1") { budget_.add(fd, from(host), now_); }
  std::optional<int> excess(int newest) const { return budget_.excess(newest, now_); }

  StrangerBudget budget_{{.listener = 4, .address = 2, .process = 1000}};
  StrangerBudget::Clock::time_point now_{1h};
};

TEST_F(StrangerBudgetTest, FollowsTheLimitOfDescriptors) {
  const auto usual = StrangerBudget::limits_for(1024);
  EXPECT_EQ(usual.listener, 128U);
  EXPECT_EQ(usual.address, 64U);
  EXPECT_EQ(usual.process, 256U);
  EXPECT_EQ(StrangerBudget::limits_for(0).listener, 16U);
  EXPECT_EQ(StrangerBudget::limits_for(std::size_t{1} << 20).listener, 1024U);
  EXPECT_EQ(StrangerBudget::limits_of_process(3).listener, 3U);
  EXPECT_LE(StrangerBudget::limits_of_process(std::numeric_limits<std::size_t>::max()).listener, 1024U);
}

TEST_F(StrangerBudgetTest, EvictsTheOldestOfTheAddressThatHasMost) {
  add(1, "10.0.0.1");
  add(2, "10.0.0.2");
  add(3, "10.0.0.2");
  add(4, "10.0.0.3");
  EXPECT_EQ(excess(4), std::nullopt);
  add(5, "10.0.0.4");
  EXPECT_THAT(excess(5), Optional(2));
  budget_.remove(2);
  EXPECT_EQ(excess(5), std::nullopt);
  add(6, "10.0.0.5");
  EXPECT_THAT(excess(6), Optional(1)) << "all have one now";
}

TEST_F(StrangerBudgetTest, OneAddressCanUseOnlyItsShare) {
  add(1);
  add(2);
  EXPECT_EQ(excess(2), std::nullopt);
  add(3);
  EXPECT_THAT(excess(3), Optional(1)) << "although the listener has room";
}

TEST_F(StrangerBudgetTest, AnIPv6NetworkIsOneAddress) {
  add(1, "2001:db8::1");
  add(2, "2001:db8::2");
  add(3, "2001:db8::3");
  EXPECT_THAT(excess(3), Optional(1));
  add(4, "2001:db8:0:1::1");
  EXPECT_EQ(excess(4), std::nullopt);
}

TEST_F(StrangerBudgetTest, AConnectionThatHasSpokenIsKept) {
  add(1);
  budget_.has_spoken(1);
  for (int fd = 2; fd <= 20; ++fd) {
    ASSERT_TRUE(budget_.may_accept(now_));
    add(fd);
    while (const auto evicted = excess(fd)) {
      EXPECT_NE(*evicted, 1);
      budget_.remove(*evicted);
    }
  }
  EXPECT_EQ(budget_.oldest()->fd, 1);
}

TEST_F(StrangerBudgetTest, WaitsIfAllHaveSpokenUntilOneIsTooSlow) {
  for (int fd = 1; fd <= 4; ++fd) {
    add(fd);
    budget_.has_spoken(fd);
  }
  EXPECT_FALSE(budget_.may_accept(now_));
  EXPECT_EQ(budget_.retry_at(), now_ + StrangerBudget::kFairTime);
  now_ = budget_.retry_at();
  ASSERT_TRUE(budget_.may_accept(now_));
  add(5);
  budget_.has_spoken(5);
  EXPECT_THAT(excess(5), Optional(1));
}

TEST_F(StrangerBudgetTest, AConnectionThatIsAuthenticatedLeavesItsPlace) {
  for (int fd = 1; fd <= 4; ++fd) add(fd, fd <= 2 ? "10.0.0.1" : "10.0.0.2");
  EXPECT_TRUE(budget_.remove(1));
  EXPECT_FALSE(budget_.remove(1));
  add(5, "10.0.0.3");
  EXPECT_EQ(excess(5), std::nullopt);
  EXPECT_EQ(budget_.size(), 4U);
}

TEST_F(StrangerBudgetTest, AllListenersOfAProcessShareTheirDescriptors) {
  const StrangerBudget::Limits limits{.listener = 100, .address = 100, .process = 20};
  StrangerBudget first(limits);
  for (int fd = 0; fd < 20; ++fd) first.add(fd, from("10.0.0.1"), now_);
  EXPECT_EQ(first.excess(19, now_), std::nullopt);
  {
    StrangerBudget second(limits);
    for (int fd = 100; fd < 108; ++fd) {
      second.add(fd, from("10.0.0.1"), now_);
      EXPECT_EQ(second.excess(fd, now_), std::nullopt) << "each listener may always have some";
    }
    second.add(108, from("10.0.0.1"), now_);
    EXPECT_THAT(second.excess(108, now_), Optional(100));
    EXPECT_THAT(first.excess(19, now_), Optional(0));
  }
  EXPECT_EQ(first.excess(19, now_), std::nullopt) << "the second listener is gone";
}

TEST_F(StrangerBudgetTest, ASilentConnectionIsClosedFirstIfThereAreNoDescriptors) {
  EXPECT_EQ(budget_.least_wanted(), std::nullopt);
  add(1);
  budget_.has_spoken(1);
  EXPECT_EQ(budget_.least_wanted(), std::nullopt);
  add(2);
  EXPECT_THAT(budget_.least_wanted(), Optional(2));
}

}  // namespace
}  // namespace lockstep
