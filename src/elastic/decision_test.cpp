#include "elastic/decision.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::elastic {
namespace {

using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

Generation generation(std::int64_t number, const std::vector<std::string>& ids, const std::string& id = "") {
  Generation result{.number = number, .id = id.empty() ? "g" + std::to_string(number) : id, .members = {}};
  for (const std::string& member : ids) result.members.push_back({.id = member, .host = "host-" + member});
  return result;
}

Registration member(const std::string& id, const Generation& of, std::int64_t step) {
  return {.member = {.id = id, .host = "host-" + id}, .accepted = of, .established = of, .step = step};
}

Registration newcomer(const std::string& id, const Generation& knows) {
  return {.member = {.id = id}, .accepted = knows, .established = {}, .step = -1};
}

const Generation kThree = generation(1, {"a", "b", "c"});
const Absence kEnded{.kind = Absence::Kind::ended};

TEST(Decide, SurvivorsKeepTheirOrder) {
  const Verdict verdict =
      decide({.here = {member("c", kThree, 5), member("a", kThree, 5)}, .absent = {{"b", kEnded}}}, {}, "next");
  ASSERT_EQ(verdict.kind, Verdict::Kind::form) << verdict.reason;
  EXPECT_THAT(verdict.answer.generation.ids(), ElementsAre("a", "c"));
  EXPECT_EQ(verdict.answer.generation.number, 2);
  EXPECT_EQ(verdict.answer.generation.id, "next");
  EXPECT_FALSE(verdict.answer.transfer);
}

TEST(Decide, TheMostAdvancedStateCounts) {
  const Verdict verdict =
      decide({.here = {member("a", kThree, 5), member("b", kThree, 6)}, .absent = {{"c", kEnded}}}, {}, "next");
  ASSERT_EQ(verdict.kind, Verdict::Kind::form);
  EXPECT_EQ(verdict.answer.source, 1);
  EXPECT_TRUE(verdict.answer.transfer);
}

TEST(Decide, NewcomersComeLastAndGetTheState) {
  const Verdict verdict =
      decide({.here = {newcomer("z", kThree), member("a", kThree, 5), member("b", kThree, 5), member("c", kThree, 5)}},
             {}, "next");
  ASSERT_EQ(verdict.kind, Verdict::Kind::form);
  EXPECT_THAT(verdict.answer.generation.ids(), ElementsAre("a", "b", "c", "z"));
  EXPECT_EQ(verdict.answer.source, 0);
  EXPECT_TRUE(verdict.answer.transfer);
}

TEST(Decide, WhoDoesNotFitUnderTheMaximumStaysOutside) {
  const Verdict verdict =
      decide({.here = {member("a", kThree, 5), member("b", kThree, 5), member("c", kThree, 5), newcomer("z", kThree)}},
             {.max_ranks = 3}, "next");
  ASSERT_EQ(verdict.kind, Verdict::Kind::form);
  EXPECT_THAT(verdict.answer.generation.ids(), ElementsAre("a", "b", "c"));
}

TEST(Decide, WaitsForTheBusyAndLeavesTheSilentBehind) {
  const Attendance two{.here = {member("a", kThree, 5), member("b", kThree, 5)}};
  const auto with = [&](Absence absence) {
    Attendance attendance = two;
    attendance.absent["c"] = absence;
    return decide(attendance, {.silent_timeout = seconds(5), .straggler_timeout = seconds(60)}, "next");
  };
  EXPECT_EQ(decide(two, {}, "next").kind, Verdict::Kind::wait);
  EXPECT_THAT(with({Absence::Kind::alive, seconds(30)}).reason, HasSubstr("host-c"));
  EXPECT_EQ(with({Absence::Kind::alive, seconds(30)}).kind, Verdict::Kind::wait);
  EXPECT_EQ(with({Absence::Kind::alive, seconds(61)}).kind, Verdict::Kind::form);
  EXPECT_EQ(with({Absence::Kind::silent, seconds(4)}).kind, Verdict::Kind::wait);
  EXPECT_EQ(with({Absence::Kind::silent, seconds(6)}).kind, Verdict::Kind::form);
  EXPECT_EQ(with({Absence::Kind::vanished, {}}).kind, Verdict::Kind::form);
}

TEST(Decide, WithoutAQuorumNobodyGoesOn) {
  const Absence silent{.kind = Absence::Kind::silent, .lasts = seconds(100)};
  const Attendance alone{.here = {member("b", kThree, 5)}, .absent = {{"a", silent}, {"c", silent}}};
  EXPECT_EQ(decide(alone, {.quorum_timeout = seconds(10)}, "next").kind, Verdict::Kind::wait);
  Attendance later = alone;
  later.elapsed = seconds(11);
  const Verdict verdict = decide(later, {.quorum_timeout = seconds(10)}, "next");
  EXPECT_EQ(verdict.kind, Verdict::Kind::give_up);
  EXPECT_THAT(verdict.reason, HasSubstr("another part of the job might go on"));
}

TEST(Decide, WhoVanishedMayHaveGoneOnAndCountsAgainstTheQuorum) {
  const Absence vanished{.kind = Absence::Kind::vanished};
  const Attendance alone{.here = {member("c", kThree, 5)}, .absent = {{"a", vanished}, {"b", vanished}}};
  EXPECT_EQ(decide(alone, {}, "next").kind, Verdict::Kind::wait);
}

// Half of the old generation accepted a decision that never became a group: both must agree to what follows.
TEST(Decide, NeedsAQuorumOfWhatWasAcceptedToo) {
  const Generation grown = generation(2, {"a", "x", "y", "z"});
  Registration a = member("a", generation(1, {"a"}), 5);
  a.accepted = grown;
  EXPECT_EQ(decide({.here = {a}}, {}, "next").kind, Verdict::Kind::wait);
  Attendance with_x{.here = {a, newcomer("x", grown)}};
  for (const char* id : {"y", "z"}) with_x.absent[id] = kEnded;
  EXPECT_EQ(decide(with_x, {}, "next").kind, Verdict::Kind::form);
}

TEST(Decide, AStateFromAnOlderGenerationIsNoSource) {
  const Generation second = generation(2, {"b", "c"});
  Registration left_behind = member("a", kThree, 9);  // made a step that the others had dropped
  const Verdict verdict = decide({.here = {left_behind, member("b", second, 6), member("c", second, 6)}}, {}, "next");
  ASSERT_EQ(verdict.kind, Verdict::Kind::form);
  EXPECT_EQ(verdict.answer.generation.members[static_cast<std::size_t>(verdict.answer.source)].id, "b");
  EXPECT_TRUE(verdict.answer.transfer);
}

// A newcomer lived in the newest generation, but never got the state; a member whose own attempt to join it failed has
// it.
TEST(Decide, AMemberThatNeverGotToLiveInTheNewestGenerationIsASourceIfNobodyElseIs) {
  const Generation second = generation(2, {"a", "x"});
  Registration a = member("a", kThree, 7);
  a.accepted = second;
  const Registration x = member("x", second, -1);
  Verdict verdict = decide({.here = {a, x}, .absent = {{"b", kEnded}, {"c", kEnded}}}, {}, "next");
  ASSERT_EQ(verdict.kind, Verdict::Kind::form) << verdict.reason;
  EXPECT_EQ(verdict.answer.generation.members[static_cast<std::size_t>(verdict.answer.source)].id, "a");
  // Not so if it had been left behind: then others may have made steps in it.
  a.accepted = kThree;
  const Generation without = generation(2, {"x", "y"});
  verdict = decide({.here = {a, member("x", without, -1), member("y", without, -1)}}, {}, "next");
  EXPECT_EQ(verdict.kind, Verdict::Kind::give_up);
}

TEST(Decide, WithoutAnyStateTheJobEnds) {
  const Verdict verdict =
      decide({.here = {member("a", kThree, -1), member("b", kThree, -1)}, .absent = {{"c", kEnded}}}, {}, "next");
  EXPECT_EQ(verdict.kind, Verdict::Kind::give_up);
  EXPECT_THAT(verdict.reason, HasSubstr("snapshot"));
}

TEST(Decide, BelowTheMinimumItWaitsAndThenEnds) {
  Attendance attendance{.here = {member("a", kThree, 5), member("b", kThree, 5)}, .absent = {{"c", kEnded}}};
  const Policy policy{.min_ranks = 3, .quorum_timeout = seconds(10)};
  EXPECT_EQ(decide(attendance, policy, "next").kind, Verdict::Kind::wait);
  attendance.elapsed = seconds(10);
  EXPECT_THAT(decide(attendance, policy, "next").reason, HasSubstr("at least 3"));
  EXPECT_EQ(decide(attendance, policy, "next").kind, Verdict::Kind::give_up);
}

}  // namespace
}  // namespace lockstep::elastic
