#include "rendezvous/init_method.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep {
namespace {

using ::testing::HasSubstr;

std::string error_of(const std::string& url) {
  const auto method = parse_init_method(url);
  EXPECT_FALSE(method.ok()) << url;
  if (method.ok()) return "";
  EXPECT_EQ(method.status().code(), StatusCode::invalid_argument);
  return method.status().message();
}

TEST(InitMethod, EnvAllowsNothingElse) {
  const auto method = parse_init_method("env://");
  ASSERT_TRUE(method.ok());
  EXPECT_EQ(method->scheme, InitScheme::env);
  EXPECT_THAT(error_of("env://somewhere"), HasSubstr("env:// must not be followed by anything"));
  EXPECT_THAT(error_of("env://?rank=1"), HasSubstr("env:// must not be followed by anything"));
}

TEST(InitMethod, TcpNamesHostPortRankAndWorldSize) {
  const auto method = parse_init_method("tcp://node7:29500?rank=1&world_size=4");
  ASSERT_TRUE(method.ok()) << method.status().message();
  EXPECT_EQ(method->scheme, InitScheme::tcp);
  EXPECT_EQ(method->host, "node7");
  EXPECT_EQ(method->port, 29500);
  EXPECT_EQ(method->rank, 1);
  EXPECT_EQ(method->world_size, 4);
}

TEST(InitMethod, QueryKeysAreOptionalAndInAnyOrder) {
  EXPECT_EQ(parse_init_method("tcp://a:1")->rank, std::nullopt);
  EXPECT_EQ(parse_init_method("tcp://a:1/")->port, 1);
  EXPECT_EQ(parse_init_method("tcp://a:1?world_size=3")->world_size, 3);
  EXPECT_EQ(parse_init_method("tcp://a:1?world_size=3&rank=2")->rank, 2);
}

TEST(InitMethod, Ipv6AddressesAreInBrackets) {
  const auto method = parse_init_method("tcp://[fe80::1]:80");
  ASSERT_TRUE(method.ok());
  EXPECT_EQ(method->host, "fe80::1");
  EXPECT_EQ(method->port, 80);
  EXPECT_THAT(error_of("tcp://fe80::1:80"), HasSubstr("brackets"));
  EXPECT_THAT(error_of("tcp://[fe80::1]"), HasSubstr("has no port"));
  EXPECT_THAT(error_of("tcp://[]:80"), HasSubstr("the host is empty"));
}

TEST(InitMethod, FileNamesAnAbsolutePath) {
  const auto method = parse_init_method("file:///tmp/meet here?rank=0&world_size=1");
  ASSERT_TRUE(method.ok());
  EXPECT_EQ(method->path, "/tmp/meet here");
  EXPECT_THAT(error_of("file://relative/path"), HasSubstr("'relative/path' is not absolute"));
  EXPECT_THAT(error_of("file:///folder/"), HasSubstr("names no file"));
}

TEST(InitMethod, ErrorsNameThePartItsValueAndWhatIsExpected) {
  EXPECT_THAT(error_of(""), HasSubstr("no scheme"));
  EXPECT_THAT(error_of("mpi://"), HasSubstr("the scheme 'mpi' is unknown; expected env://, tcp://"));
  EXPECT_THAT(error_of("tcp://a"), HasSubstr("'a' has no port"));
  EXPECT_THAT(error_of("tcp://:5"), HasSubstr("the host is empty"));
  EXPECT_THAT(error_of("tcp://a:x"), HasSubstr("port is 'x'; expected a whole number from 1 to 65535"));
  EXPECT_THAT(error_of("tcp://a:0"), HasSubstr("port is '0'"));
  EXPECT_THAT(error_of("tcp://a:70000"), HasSubstr("port is '70000'"));
  EXPECT_THAT(error_of("tcp://a:1?rank=-1"), HasSubstr("rank is '-1'; expected a whole number from 0"));
  EXPECT_THAT(error_of("tcp://a:1?rank=1x"), HasSubstr("rank is '1x'"));
  EXPECT_THAT(error_of("tcp://a:1?world_size=0"), HasSubstr("world_size is '0'; expected a whole number from 1"));
  EXPECT_THAT(error_of("tcp://a:1?world_size=99999999999"), HasSubstr("world_size is '99999999999'"));
  EXPECT_THAT(error_of("tcp://a:1?rank"), HasSubstr("'rank' has no value"));
  EXPECT_THAT(error_of("tcp://a:1?rank=1&rank=1"), HasSubstr("'rank' is given twice"));
  EXPECT_THAT(error_of("tcp://a:1?rnk=1"), HasSubstr("the key 'rnk', which is neither rank nor world_size"));
  EXPECT_THAT(error_of("tcp://a:1?"), HasSubstr("the key ''"));
  EXPECT_THAT(error_of("tcp://a:1?rank=2&world_size=2"), HasSubstr("rank=2 is not below world_size=2"));
  EXPECT_THAT(error_of(std::string("file:///a\0b", 11)), HasSubstr("NUL"));
}

}  // namespace
}  // namespace lockstep
