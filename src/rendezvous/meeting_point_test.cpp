#include "rendezvous/meeting_point.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "base/net/resolve.h"
#include "base/net/socket.h"
#include "rendezvous/network_interface.h"
#include "rendezvous/testing/test_ranks.h"

namespace lockstep {
namespace {

using test_ranks::in_seconds;
using ::testing::AllOf;
using ::testing::HasSubstr;

// A bound port: no other process gets it, and connections are refused until it listens.
struct BoundPort {
  explicit BoundPort(const std::string& host = "127.0.0.1")
      : fd(std::move(*listen_on(resolve(host, 0)->front()))), port(local_address(fd.get())->port()) {}
  UniqueFd fd;
  std::uint16_t port;
};

Placement at(int rank, int world_size, const std::string& host, std::uint16_t port) {
  Placement placement;
  placement.rank = rank;
  placement.world_size = world_size;
  placement.master_host = host;
  placement.master_port = port;
  return placement;
}

std::string error_of(const Placement& placement, StatusCode code, const Secret& secret = {}, double timeout = 10) {
  const auto point = open_meeting_point(placement, secret, in_seconds(timeout));
  EXPECT_FALSE(point.ok());
  EXPECT_EQ(point.status().code(), code) << point.status().message();
  return point.status().message();
}

Placement served_on(BoundPort& bound, const std::string& host = "127.0.0.1") {
  auto placement = at(0, 2, host, bound.port);
  placement.store_fd = bound.fd.release();
  return placement;
}

TEST(MeetingPoint, RankZeroServesAndTheOthersFindIt) {
  for (const std::string host : {"127.0.0.1", "localhost", "::1"}) {
    if (!choose_local_address(host == "localhost" ? "lo" : host, "").ok()) continue;  // a host without IPv6
    BoundPort bound(host);
    const auto port = bound.port;
    const auto first = open_meeting_point(served_on(bound, host), Secret("s"), in_seconds(10));
    ASSERT_TRUE(first.ok()) << first.status().message();
    const auto second = open_meeting_point(at(1, 2, host, port), Secret("s"), in_seconds(10));
    ASSERT_TRUE(second.ok()) << second.status().message();
    EXPECT_TRUE(first->store->set("key", "value", in_seconds(5)).ok());
    EXPECT_EQ(*second->store->get("key", in_seconds(5)), "value");
    EXPECT_EQ(second->master_host, host);
  }
}

TEST(MeetingPoint, TheOthersMayStartFirst) {
  BoundPort bound;
  const auto port = bound.port;
  bound.fd.reset();
  std::thread second([&] {
    const auto point = open_meeting_point(at(1, 2, "127.0.0.1", port), {}, in_seconds(20));
    EXPECT_TRUE(point.ok()) << point.status().message();
  });
  const auto first = open_meeting_point(at(0, 2, "127.0.0.1", port), {}, in_seconds(20));
  EXPECT_TRUE(first.ok()) << first.status().message();
  second.join();
}

TEST(MeetingPoint, AServedStoreIsNotServedAgain) {
  const auto server = value_or_throw(TcpStoreServer::start({}));
  auto placement = at(0, 1, "127.0.0.1", server->port());
  placement.store_is_served = true;
  EXPECT_TRUE(open_meeting_point(placement, {}, in_seconds(10)).ok());
}

TEST(MeetingPoint, OneRankAloneNeedsNoPort) {
  BoundPort in_use;
  EXPECT_TRUE(open_meeting_point(at(0, 1, "127.0.0.1", in_use.port), {}, in_seconds(10)).ok());
}

TEST(MeetingPoint, FilesAreOpened) {
  test_ranks::FilePlace place;
  Placement placement;
  placement.scheme = InitScheme::file;
  placement.world_size = 2;
  placement.path = place.path();
  EXPECT_TRUE(open_meeting_point(placement, {}, in_seconds(10)).ok());
  placement.path = "/no/such/folder/store";
  EXPECT_FALSE(open_meeting_point(placement, {}, in_seconds(10)).ok());
}

TEST(MeetingPoint, AnUnknownNameIsNamed) {
  EXPECT_THAT(error_of(at(1, 2, "no-such-host.invalid", 80), StatusCode::unavailable),
              HasSubstr("MASTER_ADDR 'no-such-host.invalid' cannot be resolved"));
}

TEST(MeetingPoint, AMasterThatDoesNotAnswerIsNamed) {
  BoundPort bound;
  const auto port = bound.port;
  bound.fd.reset();
  EXPECT_THAT(error_of(at(1, 2, "127.0.0.1", port), StatusCode::unavailable, {}, 0.3),
              AllOf(HasSubstr("the store at 127.0.0.1:" + std::to_string(port) + " could not be reached within "),
                    HasSubstr("Is rank 0 running there")));
}

TEST(MeetingPoint, APortInUseIsNamed) {
  BoundPort bound;
  EXPECT_THAT(error_of(at(0, 2, "127.0.0.1", bound.port), StatusCode::already_exists),
              AllOf(HasSubstr("MASTER_PORT " + std::to_string(bound.port) + " on 127.0.0.1 is in use"),
                    HasSubstr("Choose another port")));
}

TEST(MeetingPoint, AnAddressOfAnotherHostIsNamed) {
  EXPECT_THAT(error_of(at(0, 2, "203.0.113.7", 29500), StatusCode::invalid_argument, Secret("s")),
              HasSubstr("MASTER_ADDR '203.0.113.7' is not an address of this host"));
}

TEST(MeetingPoint, WithoutASecretOnlyLoopbackIsServed) {
  EXPECT_THAT(error_of(at(0, 2, "0.0.0.0", 29500), StatusCode::unauthenticated),
              AllOf(HasSubstr("MASTER_ADDR '0.0.0.0'"), HasSubstr("LOCKSTEP_SECRET")));
}

TEST(MeetingPoint, AnotherSecretIsNamed) {
  BoundPort bound;
  const auto port = bound.port;
  const auto first = open_meeting_point(served_on(bound), Secret("right"), in_seconds(10));
  ASSERT_TRUE(first.ok());
  for (const Secret& secret : {Secret("wrong"), Secret()}) {
    EXPECT_THAT(error_of(at(1, 2, "127.0.0.1", port), StatusCode::unauthenticated, secret),
                HasSubstr("Set the same LOCKSTEP_SECRET"));
  }
}

}  // namespace
}  // namespace lockstep
