#include "rendezvous/environment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Variables = std::map<std::string, std::string>;

Environment environment_of(Variables variables) {
  return [variables = std::move(variables)](const char* name) -> std::optional<std::string> {
    const auto entry = variables.find(name);
    if (entry == variables.end()) return std::nullopt;
    return entry->second;
  };
}

const Variables kComplete = {
    {"RANK", "1"}, {"WORLD_SIZE", "4"}, {"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", "29500"}};

Variables complete_but(const Variables& changed) {
  Variables result = changed;
  result.insert(kComplete.begin(), kComplete.end());
  return result;
}

std::string error_of(const InitOptions& options, Variables variables) {
  const auto placement = find_placement(options, environment_of(std::move(variables)));
  EXPECT_FALSE(placement.ok());
  if (placement.ok()) return "";
  EXPECT_EQ(placement.status().code(), StatusCode::invalid_argument);
  return placement.status().message();
}

TEST(Environment, NamesRankWorldSizeAndMaster) {
  const auto placement = find_placement({}, environment_of(kComplete));
  ASSERT_TRUE(placement.ok()) << placement.status().message();
  EXPECT_EQ(placement->rank, 1);
  EXPECT_EQ(placement->world_size, 4);
  EXPECT_EQ(placement->master_host, "127.0.0.1");
  EXPECT_EQ(placement->master_port, 29500);
  EXPECT_FALSE(placement->store_is_served);
}

TEST(Environment, WithNothingSetTheErrorListsTheVariablesAndSuggestsTheLauncher) {
  EXPECT_THAT(error_of({}, {}),
              AllOf(HasSubstr("not set: RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT"), HasSubstr("lockstep run")));
  EXPECT_THAT(error_of({}, {{"RANK", "0"}, {"WORLD_SIZE", "2"}}), HasSubstr("not set: MASTER_ADDR, MASTER_PORT."));
}

TEST(Environment, OneRankAloneNeedsNoMaster) {
  EXPECT_TRUE(find_placement({}, environment_of({{"RANK", "0"}, {"WORLD_SIZE", "1"}})).ok());
  EXPECT_TRUE(find_placement({.rank = 0, .world_size = 1}, environment_of({})).ok());
}

TEST(Environment, EveryBadValueIsNamedWithWhatIsExpected) {
  EXPECT_THAT(error_of({}, complete_but({{"RANK", "one"}})),
              HasSubstr("RANK is 'one'; expected a whole number from 0"));
  EXPECT_THAT(error_of({}, complete_but({{"RANK", ""}})), HasSubstr("RANK is ''"));
  EXPECT_THAT(error_of({}, complete_but({{"RANK", "4"}})),
              HasSubstr("RANK is 4, but WORLD_SIZE is 4; expected a rank from 0 to 3"));
  EXPECT_THAT(error_of({}, complete_but({{"WORLD_SIZE", "0"}})), HasSubstr("WORLD_SIZE is '0'"));
  EXPECT_THAT(error_of({}, complete_but({{"WORLD_SIZE", "4.0"}})), HasSubstr("WORLD_SIZE is '4.0'"));
  EXPECT_THAT(error_of({}, complete_but({{"MASTER_PORT", "65536"}})),
              HasSubstr("MASTER_PORT is '65536'; expected a whole number from 1 to 65535"));
  EXPECT_THAT(error_of({}, complete_but({{"MASTER_ADDR", ""}})), HasSubstr("MASTER_ADDR is ''"));
  EXPECT_THAT(error_of({.rank = -1}, kComplete), HasSubstr("InitOptions::rank is -1"));
  EXPECT_THAT(error_of({}, complete_but({{"LOCKSTEP_STORE_IS_SERVED", "yes"}})),
              HasSubstr("LOCKSTEP_STORE_IS_SERVED is 'yes'; expected a whole number from 0 to 1"));
}

TEST(Environment, ContradictionsNameBothSides) {
  EXPECT_THAT(error_of({.rank = 2}, kComplete), HasSubstr("RANK is 1, but InitOptions::rank is 2"));
  EXPECT_THAT(error_of({.world_size = 8}, kComplete), HasSubstr("WORLD_SIZE is 4, but InitOptions::world_size is 8"));
  EXPECT_THAT(error_of({}, complete_but({{"LOCAL_RANK", "2"}, {"LOCAL_WORLD_SIZE", "2"}})),
              HasSubstr("LOCAL_RANK is 2, but LOCAL_WORLD_SIZE is 2"));
  EXPECT_THAT(error_of({}, complete_but({{"LOCAL_WORLD_SIZE", "5"}})),
              HasSubstr("LOCAL_WORLD_SIZE is 5, but WORLD_SIZE is 4"));
  EXPECT_THAT(error_of({}, complete_but({{"LOCAL_RANK", "4"}})), HasSubstr("LOCAL_RANK is 4, but WORLD_SIZE is 4"));
  EXPECT_THAT(error_of({}, complete_but({{"LOCKSTEP_STORE_IS_SERVED", "1"}, {"LOCKSTEP_STORE_FD", "7"}})),
              HasSubstr("LOCKSTEP_STORE_FD is 7"));
  EXPECT_THAT(error_of({}, {{"RANK", "0"}, {"WORLD_SIZE", "1"}, {"MASTER_PORT", "1"}}),
              HasSubstr("MASTER_PORT is set, but MASTER_ADDR is not"));
}

TEST(Environment, AgreeingTwiceIsFine) {
  EXPECT_TRUE(find_placement({.rank = 1, .world_size = 4},
                             environment_of(complete_but({{"LOCAL_RANK", "1"}, {"LOCAL_WORLD_SIZE", "2"}})))
                  .ok());
}

TEST(Environment, UrlsAreCompletedByTheOptionsAndNotByTheEnvironment) {
  const auto placement =
      find_placement({.init_method = "tcp://[::1]:80?world_size=3", .rank = 2}, environment_of(kComplete));
  ASSERT_TRUE(placement.ok()) << placement.status().message();
  EXPECT_EQ(placement->rank, 2);
  EXPECT_EQ(placement->world_size, 3);
  EXPECT_EQ(placement->master_host, "::1");
  EXPECT_THAT(error_of({.init_method = "tcp://a:1"}, kComplete),
              HasSubstr("neither rank= of 'tcp://a:1' nor InitOptions::rank is set"));
  EXPECT_THAT(error_of({.init_method = "file:///x?rank=1", .rank = 0, .world_size = 2}, {}),
              HasSubstr("rank= of 'file:///x?rank=1' is 1, but InitOptions::rank is 0"));
  EXPECT_THAT(error_of({.init_method = "file:///x?rank=2", .world_size = 2}, {}),
              HasSubstr("is 2, but InitOptions::world_size is 2"));
}

}  // namespace
}  // namespace lockstep
