#include "doctor/host_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::doctor {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> hosts_of(const std::string& text) {
  const auto parsed = parse_host_list(text, 29400);
  if (!parsed.ok()) return {"error: " + parsed.status().message()};
  std::vector<std::string> texts;
  for (const HostPort& host : *parsed) texts.push_back(to_string(host));
  return texts;
}

TEST(HostList, HasHostsWithAndWithoutPorts) {
  EXPECT_THAT(hosts_of("gpu1,10.0.0.2:500"), ElementsAre("gpu1:29400", "10.0.0.2:500"));
}

TEST(HostList, HasRanges) {
  EXPECT_THAT(hosts_of("gpu[08-10]"), ElementsAre("gpu08:29400", "gpu09:29400", "gpu10:29400"));
  EXPECT_THAT(hosts_of("a[1,3]:5,b"), ElementsAre("a1:5", "a3:5", "b:29400"));
  EXPECT_THAT(hosts_of("a[3-1]"), ElementsAre(HasSubstr("runs backwards")));
  EXPECT_THAT(hosts_of("a[1-2"), ElementsAre(HasSubstr("brackets do not match")));
  EXPECT_THAT(hosts_of("a[1-2]:x"), ElementsAre(HasSubstr("the port is not a number")));
  EXPECT_THAT(hosts_of("a[1-65536],b"), ElementsAre(HasSubstr("more than 65536 hosts")));
}

TEST(HostList, HasIpv6Addresses) {
  EXPECT_THAT(hosts_of("fd00::2,[fd00::3],[fd00::4]:7"),
              ElementsAre("[fd00::2]:29400", "[fd00::3]:29400", "[fd00::4]:7"));
  EXPECT_THAT(hosts_of("fe80::1%eth0"), ElementsAre("[fe80::1%eth0]:29400"));
  EXPECT_THAT(hosts_of("gpu1:2:3"), ElementsAre(HasSubstr("'gpu1:2:3' is not an address")));
  EXPECT_THAT(hosts_of("[1-3]"), ElementsAre(HasSubstr("no IPv6 address in the brackets")));
}

TEST(HostList, HasNoUsersAndNoHostTwice) {
  EXPECT_THAT(hosts_of("me@gpu1,gpu2"), ElementsAre(HasSubstr("'me@gpu1': leave out the user")));
  EXPECT_THAT(hosts_of("gpu1,gpu[1-2]"), ElementsAre(HasSubstr("'gpu1:29400': it is listed twice")));
  EXPECT_THAT(hosts_of("gpu1:1,gpu1:2"), ElementsAre("gpu1:1", "gpu1:2"));
  EXPECT_THAT(hosts_of("gpu1,"), ElementsAre(HasSubstr("a host is missing")));
}

}  // namespace
}  // namespace lockstep::doctor
