#include "rendezvous/node_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> nodes_of(std::string_view list) {
  const auto nodes = expand_node_list(list);
  EXPECT_TRUE(nodes.ok()) << nodes.status().message();
  return nodes.ok() ? *nodes : std::vector<std::string>();
}

std::string error_of(std::string_view list) {
  const auto nodes = expand_node_list(list);
  EXPECT_FALSE(nodes.ok()) << list;
  return nodes.status().message();
}

TEST(NodeList, NamesWithoutBrackets) {
  EXPECT_THAT(nodes_of("node7"), ElementsAre("node7"));
  EXPECT_THAT(nodes_of("a.example.org,b-2"), ElementsAre("a.example.org", "b-2"));
}

TEST(NodeList, RangesKeepTheirWidth) {
  EXPECT_THAT(nodes_of("node[01-03,07],gpu1"), ElementsAre("node01", "node02", "node03", "node07", "gpu1"));
  EXPECT_THAT(nodes_of("n[8-10]"), ElementsAre("n8", "n9", "n10"));
  EXPECT_THAT(nodes_of("n[098-101].local"), ElementsAre("n098.local", "n099.local", "n100.local", "n101.local"));
}

TEST(NodeList, SeveralBracketsInOneName) {
  EXPECT_THAT(nodes_of("gpu-[1-2]x[3-4]"), ElementsAre("gpu-1x3", "gpu-1x4", "gpu-2x3", "gpu-2x4"));
}

TEST(NodeList, MistakesAreNamed) {
  EXPECT_THAT(error_of(""), HasSubstr("a host is missing"));
  EXPECT_THAT(error_of("a,,b"), HasSubstr("a host is missing"));
  EXPECT_THAT(error_of("a,"), HasSubstr("a host is missing"));
  EXPECT_THAT(error_of("node[1-2"), HasSubstr("'node[1-2' is not a list of hosts: its brackets do not match"));
  EXPECT_THAT(error_of("node1-2]"), HasSubstr("brackets do not match"));
  EXPECT_THAT(error_of("node[[1]]"), HasSubstr("brackets do not match"));
  EXPECT_THAT(error_of("node[]"), HasSubstr("a bracket lacks a number"));
  EXPECT_THAT(error_of("node[1,]"), HasSubstr("a bracket lacks a number"));
  EXPECT_THAT(error_of("node[1-x]"), HasSubstr("'1-x' is not a number or range"));
  EXPECT_THAT(error_of("node[1-2-3]"), HasSubstr("'1-2-3' is not a number or range"));
  EXPECT_THAT(error_of("node[3-1]"), HasSubstr("the range '3-1' runs backwards"));
  EXPECT_THAT(error_of("n[0000000000000001-9]"), HasSubstr("is not a number or range"));
  EXPECT_THAT(error_of("n[1-2]" + std::string(300, 'x')), HasSubstr("a host name is too long"));
  EXPECT_THAT(error_of("a b"), HasSubstr("not allowed in host names"));
}

TEST(NodeList, TooManyHostsAreRejectedBeforeTheyAreCreated) {
  EXPECT_EQ(nodes_of("n[1-65536]").size(), kMaxListedNodes);
  for (const auto* list : {"n[1-65537]", "n[0-4294967295]", "n[1-999][1-999]", "n[1-65536],m", "n[1-9999]x[1-9999]y"}) {
    EXPECT_THAT(error_of(list), HasSubstr("more than 65536 hosts")) << list;
  }
}

}  // namespace
}  // namespace lockstep
