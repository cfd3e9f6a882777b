#include "launch/options/endpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/reserved_port.h"

namespace lockstep::launch {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(Endpoint, OneOrSeveral) {
  const auto one = parse_endpoints("gpu1:29400", 1);
  ASSERT_TRUE(one.ok());
  ASSERT_EQ(one->size(), 1U);
  EXPECT_EQ(to_string(one->front()), "gpu1:29400");
  const auto two = parse_endpoints("gpu1,[::1]:2", 1);
  ASSERT_TRUE(two.ok());
  ASSERT_EQ(two->size(), 2U);
  EXPECT_EQ(to_string((*two)[1]), "[::1]:2");
  EXPECT_THAT(parse_endpoints("gpu1:1,", 1).status().message(), HasSubstr("''"));
  EXPECT_EQ(to_string(two->front()), "gpu1:1");
  EXPECT_THAT(parse_endpoints("gpu1:x", 1).status().message(), HasSubstr("'gpu1:x'"));
}

TEST(Endpoint, IsServedOnItsHostOnce) {
  const auto first = open_own_store({{"127.0.0.1", 0}}, "", Secret());
  ASSERT_TRUE(first.ok()) << first.status().message();
  EXPECT_EQ(first->endpoint, 0);
  const std::vector<HostPort> endpoint = {{"127.0.0.1", first->server->port()}};
  // The first launcher uses the port: the second one opens a standby.
  const auto second = open_own_store(endpoint, "", Secret());
  ASSERT_TRUE(second.ok()) << second.status().message();
  EXPECT_EQ(second->endpoint, -1);
  EXPECT_THAT(second->address, StartsWith("127.0.0.1:"));
  EXPECT_NE(second->address, first->address);
}

TEST(Endpoint, AnotherHostNeedsASecretForItsStandby) {
  // An address of a network reserved for documentation, which no host has.
  const auto own = open_own_store({{"192.0.2.1", 29400}}, "", Secret());
  if (own.status().code() == StatusCode::unavailable) GTEST_SKIP() << own.status().message();
  EXPECT_EQ(own.status().code(), StatusCode::unauthenticated);
  EXPECT_THAT(own.status().message(), HasSubstr("LOCKSTEP_SECRET_FILE"));
}

TEST(Endpoint, AHostThatCannotBeResolvedIsNamed) {
  const auto own = open_own_store({{"no-such-host.invalid", 29400}}, "", Secret("s"));
  EXPECT_THAT(own.status().message(), HasSubstr("no-such-host.invalid"));
}

}  // namespace
}  // namespace lockstep::launch
