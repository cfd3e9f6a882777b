#include "communicator/control/control_plane.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <condition_variable>
#include <map>
#include <optional>
#include <set>

#include "base/net/socket.h"
#include "base/shared_memory.h"

namespace lockstep {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

class Events final : public ControlEvents {
 public:
  void on_control_message(int, ControlMessage, UniqueFd) override {}
  void on_control_closed(int rank, const std::string& how) override {
    const std::lock_guard lock(mutex_);
    closed_[rank] = how;
    changed_.notify_all();
  }
  void on_control_silent(int rank, Deadline::Duration) override {
    const std::lock_guard lock(mutex_);
    silent_.insert(rank);
    changed_.notify_all();
  }
  Deadline::Clock::time_point on_control_turn(Deadline::Clock::time_point now) override { return now + 1h; }

  // How the connection to `rank` ended; empty if it did not within 5 s.
  std::string wait_for_end(int rank) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, 5s, [&] { return closed_.contains(rank); });
    return closed_[rank];
  }

  bool is_silent_within(int rank, std::chrono::milliseconds time) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, time, [&] { return silent_.contains(rank); });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::set<int> silent_;
  std::map<int, std::string> closed_;
};

// Two ranks, of which the second is only the other end of a socket.
struct Plane {
  explicit Plane(std::chrono::milliseconds peer_timeout = 10s, std::chrono::milliseconds forming_timeout = 10s) {
    int ends[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends), 0);
    std::vector<ControlLink> links;
    links.push_back({.rank = 1, .socket = UniqueFd(ends[0])});
    peer.reset(ends[1]);
    control.emplace(std::move(links), peer_timeout, forming_timeout, events);
    EXPECT_TRUE(control->start().ok());
  }
  Events events;
  UniqueFd peer;
  std::optional<ControlPlane> control;  // destroyed first: it calls the events
};

// A dropped message would leave the peer waiting until its own timeout, for a region that it never heard of.
TEST(ControlPlane, AMessageThatCannotBeSentEndsTheConnection) {
  Plane plane;
  const std::shared_ptr<const SharedMemory> region = value_or_throw(SharedMemory::create(4096, "test"));
  const int number = region->fd();
  ::close(number);  // so that the kernel cannot pass it on
  plane.control->send(1, RegionGrant{.from = 0, .to = 1, .id = 1, .bytes = 4096}, {number, region});
  EXPECT_THAT(plane.events.wait_for_end(1), HasSubstr("could not send"));
  ::dup2(plane.peer.get(), number);  // for the destructor
}

TEST(ControlPlane, AMessageToARankWithoutALinkIsDropped) {
  Plane plane;
  plane.control->send(0, Heartbeat{});
  plane.control->send(2, Heartbeat{});
  plane.control->flush_and_stop(Deadline::after(5s));
}

// A peer sends its first heartbeat when it has formed the group, which may take longer than the peer timeout.
TEST(ControlPlane, SilenceCountsFromTheFirstHeartbeat) {
  Plane plane(100ms, 30s);
  EXPECT_FALSE(plane.events.is_silent_within(1, 400ms));
  const Bytes heartbeat = format_control_message(Heartbeat{});
  ASSERT_TRUE(send_all(plane.peer.get(), heartbeat, Deadline::after(5s)).ok());
  EXPECT_TRUE(plane.events.is_silent_within(1, 10s));
}

TEST(ControlPlane, APeerThatEndsIsReported) {
  Plane plane;
  plane.peer.reset();
  // Reset, if it has not read the heartbeat.
  EXPECT_THAT(plane.events.wait_for_end(1), ::testing::AnyOf(HasSubstr("closed"), HasSubstr("reset")));
}

}  // namespace
}  // namespace lockstep
