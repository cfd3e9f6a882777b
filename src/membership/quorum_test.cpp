#include "membership/quorum.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace lockstep::membership {
namespace {

using Names = std::set<std::string>;
const std::vector<std::string> kFour = {"a", "b", "c", "d"};

TEST(Quorum, NeedsMoreThanHalfOfTheMembersThatMayBeAlive) {
  EXPECT_TRUE(count_quorum(kFour, {}, {"b", "c", "d"}).reached);
  EXPECT_FALSE(count_quorum(kFour, {}, {"b"}).reached);
  EXPECT_TRUE(count_quorum(kFour, {"a", "c"}, {"b", "d"}).reached);
  EXPECT_TRUE(count_quorum(kFour, {"a", "c", "d"}, {"b"}).reached);
}

TEST(Quorum, HalfIsEnoughIfItIncludesTheFirstThatMayBeAlive) {
  EXPECT_TRUE(count_quorum(kFour, {}, {"a", "d"}).reached);
  EXPECT_FALSE(count_quorum(kFour, {}, {"b", "c"}).reached);
  EXPECT_TRUE(count_quorum(kFour, {"a", "d"}, {"b"}).reached);
  EXPECT_FALSE(count_quorum(kFour, {"a", "d"}, {"c"}).reached);
}

TEST(Quorum, ProcessesThatAreNotMembersDoNotCount) {
  EXPECT_FALSE(count_quorum(kFour, {}, {"b", "x", "y", "z"}).reached);
  EXPECT_FALSE(count_quorum({}, {}, {"x"}).reached);
}

TEST(Quorum, APresentMemberHasNotEnded) { EXPECT_TRUE(count_quorum(kFour, {"a"}, {"a", "b"}).reached); }

TEST(Quorum, ReasonStatesWhatIsMissing) {
  EXPECT_THAT(count_quorum(kFour, {}, {"d"}).reason, ::testing::HasSubstr("1 of the 4"));
  EXPECT_THAT(count_quorum(kFour, {}, {"c", "d"}).reason, ::testing::HasSubstr("not the first"));
}

// Members are dead or alive. Each part is a set of living members that knows of some of the dead ones.
TEST(Quorum, NoTwoDisjointPartsBothReachIt) {
  std::mt19937 random(7);
  int reached = 0;
  for (int round = 0; round < 20000; ++round) {
    std::vector<std::string> members;
    for (unsigned i = 0, n = 1 + random() % 8; i < n; ++i)
      members.push_back(std::string(1, static_cast<char>('a' + i)));
    Names parts[2], known_dead[2];
    for (const std::string& member : members) {
      switch (random() % 4) {
        case 0: parts[0].insert(member); break;
        case 1: parts[1].insert(member); break;
        case 2:  // dead: each part may or may not know
          for (Names& known : known_dead) {
            if (random() % 2 == 0) known.insert(member);
          }
          break;
        default: break;  // alive, in neither part
      }
    }
    const bool first = count_quorum(members, known_dead[0], parts[0]).reached;
    const bool second = count_quorum(members, known_dead[1], parts[1]).reached;
    EXPECT_FALSE(first && second);
    reached += first || second ? 1 : 0;
  }
  EXPECT_GT(reached, 1000);
}

}  // namespace
}  // namespace lockstep::membership
