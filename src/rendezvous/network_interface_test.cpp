#include "rendezvous/network_interface.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/net/resolve.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(NetworkInterface, IsFoundByNameAndByAddress) {
  EXPECT_EQ(choose_local_address("lo", "")->to_string(), "127.0.0.1:0");
  EXPECT_EQ(choose_local_address("127.0.0.1", "")->to_string(), "127.0.0.1:0");
}

TEST(NetworkInterface, TheErrorListsTheExistingInterfaces) {
  const auto address = choose_local_address("eth99", "");
  ASSERT_FALSE(address.ok());
  EXPECT_THAT(address.status().message(), AllOf(HasSubstr("'eth99'"), HasSubstr("lo (127.0.0.1)")));
  EXPECT_FALSE(choose_local_address("203.0.113.1", "").ok()) << "not an address of this host";
}

TEST(NetworkInterface, ByDefaultItIsTheOneThatReachesTheMaster) {
  EXPECT_EQ(choose_local_address("", "127.0.0.1")->to_string(), "127.0.0.1:0");
  EXPECT_TRUE(choose_local_address("", "").ok());
}

TEST(NetworkInterface, AnAddressOfOneLinkIsNotPublished) {
  for (const char* address : {"10.0.0.1", "169.254.3.4", "127.0.0.1", "2001:db8::1", "fd00::1", "::1"}) {
    EXPECT_TRUE(reachable_by_address(resolve(address, 0)->front()).ok()) << address;
  }
  const Status refused = reachable_by_address(resolve("fe80::1", 0)->front());
  EXPECT_EQ(refused.code(), StatusCode::invalid_argument);
  EXPECT_THAT(refused.message(), AllOf(HasSubstr("fe80::1"), HasSubstr("LOCKSTEP_INTERFACE")));
}

TEST(NetworkInterface, Ipv6IsServedIfTheHostHasIt) {
  const auto loopback = choose_local_address("::1", "");
  if (!loopback.ok()) GTEST_SKIP() << "this host has no IPv6 loopback: " << loopback.status().message();
  EXPECT_EQ(loopback->to_string(), "[::1]:0");
  EXPECT_EQ(choose_local_address("", "::1")->to_string(), "[::1]:0");
}

}  // namespace
}  // namespace lockstep
