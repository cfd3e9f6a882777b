#include "membership/decision.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::membership {
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
  const Decision decision =
      decide({.present = {member("c", kThree, 5), member("a", kThree, 5)}, .absent = {{"b", kEnded}}}, {}, "next");
  ASSERT_EQ(decision.kind, Decision::Kind::form) << decision.reason;
  EXPECT_THAT(decision.answer.generation.ids(), ElementsAre("a", "c"));
  EXPECT_EQ(decision.answer.generation.number, 2);
  EXPECT_EQ(decision.answer.generation.id, "next");
  EXPECT_FALSE(decision.answer.transfer);
}

TEST(Decide, TheMostAdvancedStateCounts) {
  const Decision decision =
      decide({.present = {member("a", kThree, 5), member("b", kThree, 6)}, .absent = {{"c", kEnded}}}, {}, "next");
  ASSERT_EQ(decision.kind, Decision::Kind::form);
  EXPECT_EQ(decision.answer.source, 1);
  EXPECT_TRUE(decision.answer.transfer);
}

TEST(Decide, NewcomersComeLastAndGetTheState) {
  const Decision decision = decide(
      {.present = {newcomer("z", kThree), member("a", kThree, 5), member("b", kThree, 5), member("c", kThree, 5)}}, {},
      "next");
  ASSERT_EQ(decision.kind, Decision::Kind::form);
  EXPECT_THAT(decision.answer.generation.ids(), ElementsAre("a", "b", "c", "z"));
  EXPECT_EQ(decision.answer.source, 0);
  EXPECT_TRUE(decision.answer.transfer);
}

TEST(Decide, NewcomersBeyondTheMaximumAreLeftOut) {
  const Decision decision = decide(
      {.present = {member("a", kThree, 5), member("b", kThree, 5), member("c", kThree, 5), newcomer("z", kThree)}},
      {.max_ranks = 3}, "next");
  ASSERT_EQ(decision.kind, Decision::Kind::form);
  EXPECT_THAT(decision.answer.generation.ids(), ElementsAre("a", "b", "c"));
}

TEST(Decide, WaitsForBusyMembersAndLeavesSilentOnesBehind) {
  const MembershipView two{.present = {member("a", kThree, 5), member("b", kThree, 5)}};
  const auto with = [&](Absence absence) {
    MembershipView view = two;
    view.absent["c"] = absence;
    return decide(view, {.silent_timeout = seconds(5), .straggler_timeout = seconds(60)}, "next");
  };
  EXPECT_EQ(decide(two, {}, "next").kind, Decision::Kind::wait);
  EXPECT_THAT(with({Absence::Kind::alive, seconds(30)}).reason, HasSubstr("host-c"));
  EXPECT_EQ(with({Absence::Kind::alive, seconds(30)}).kind, Decision::Kind::wait);
  EXPECT_EQ(with({Absence::Kind::alive, seconds(61)}).kind, Decision::Kind::form);
  EXPECT_EQ(with({Absence::Kind::silent, seconds(4)}).kind, Decision::Kind::wait);
  EXPECT_EQ(with({Absence::Kind::silent, seconds(6)}).kind, Decision::Kind::form);
}

TEST(Decide, AMemberThatIsNeverProbedIsNotAwaitedForEver) {
  MembershipView view{.present = {member("a", kThree, 5), member("b", kThree, 5)}};
  const Policy policy{.quorum_timeout = seconds(10)};
  view.elapsed = seconds(9);
  EXPECT_EQ(decide(view, policy, "next").kind, Decision::Kind::wait);
  view.elapsed = seconds(10);
  EXPECT_EQ(decide(view, policy, "next").kind, Decision::Kind::form);
}

TEST(Decide, WithoutAQuorumNoProcessContinues) {
  const Absence silent{.kind = Absence::Kind::silent, .lasts = seconds(100)};
  const MembershipView alone{.present = {member("b", kThree, 5)}, .absent = {{"a", silent}, {"c", silent}}};
  EXPECT_EQ(decide(alone, {.quorum_timeout = seconds(10)}, "next").kind, Decision::Kind::wait);
  MembershipView later = alone;
  later.elapsed = seconds(11);
  const Decision decision = decide(later, {.quorum_timeout = seconds(10)}, "next");
  EXPECT_EQ(decision.kind, Decision::Kind::give_up);
  EXPECT_THAT(decision.reason, HasSubstr("another part of the job might continue"));
}

// A firewall refuses connections as an ended process does.
TEST(Decide, AnUnreachableMemberIsNotAwaitedButCountsInTheQuorum) {
  const Absence unreachable{.kind = Absence::Kind::unreachable};
  MembershipView view{.present = {member("a", kThree, 5), member("b", kThree, 5)}, .absent = {{"c", unreachable}}};
  EXPECT_EQ(decide(view, {}, "next").kind, Decision::Kind::form);
  view = {.present = {member("c", kThree, 5)}, .absent = {{"a", unreachable}, {"b", unreachable}}};
  EXPECT_EQ(decide(view, {}, "next").kind, Decision::Kind::wait);
}

// The site of an ended member had accepted a generation that none of those present knows.
TEST(Decide, NeedsAQuorumOfWhatAnEndedMemberAccepted) {
  const Generation unknown = generation(2, {"b", "x", "y"});
  MembershipView view{
      .present = {member("a", kThree, 5), member("c", kThree, 5)}, .absent = {{"b", kEnded}}, .attested = {{unknown}}};
  EXPECT_EQ(decide(view, {}, "next").kind, Decision::Kind::wait);
  view.attested = {{kThree}};
  EXPECT_EQ(decide(view, {}, "next").kind, Decision::Kind::form);
}

// A member of generation 2 ended before it accepted it, so generation 2 never became a group.
TEST(Decide, AVoidGenerationDoesNotCount) {
  const Generation second = generation(2, {"b", "x"});
  MembershipView view{.present = {member("a", kThree, 5), member("c", kThree, 5)},
                      .absent = {{"b", kEnded}, {"x", kEnded}},
                      .attested = {{second}},
                      .ended_with = {{"b", second}, {"x", second}}};
  EXPECT_EQ(decide(view, {}, "next").kind, Decision::Kind::wait) << "its members may have made steps";
  view.ended_with["b"] = kThree;
  const Decision decision = decide(view, {}, "next");
  ASSERT_EQ(decision.kind, Decision::Kind::form) << decision.reason;
  EXPECT_EQ(decision.answer.generation.number, 3) << "the host of x has accepted a generation 2";
  view.attested.push_back({generation(1, {"x", "y", "z"}, "other")});
  EXPECT_EQ(decide(view, {}, "next").kind, Decision::Kind::wait) << "another generation 1, which may be a group";
  view.attested.pop_back();
  view.ended_with["b"] = generation(2, {"b", "y"}, "another");
  EXPECT_EQ(decide(view, {}, "next").kind, Decision::Kind::form) << "a host accepts one generation of each number";
}

// All members of generation 2 made steps and accepted generation 3, of which the member x never did. Then they ended.
TEST(Decide, AVoidGenerationDoesNotHideAnOlderOne) {
  const Generation second = generation(2, {"a", "b"}), third = generation(3, {"a", "b", "x"});
  MembershipView view{.present = {member("c", kThree, 5)},
                      .absent = {{"a", kEnded}, {"b", kEnded}, {"x", kEnded}},
                      .attested = {{third}, {second}},
                      .ended_with = {{"a", third}, {"b", third}, {"x", Generation{}}}};
  EXPECT_EQ(decide(view, {}, "next").kind, Decision::Kind::wait) << "generation 2 may have made steps";
  view.attested = {{.generation = third, .may_hide_others = true}};
  EXPECT_EQ(decide(view, {}, "next").kind, Decision::Kind::wait) << "there may be a generation 2";
  view.attested = {{third}};
  EXPECT_EQ(decide(view, {}, "next").kind, Decision::Kind::form);
}

// b never had the state of generation 2, and left generation 3, which a had accepted before it ended. c was left behind
// by generation 3 and asks to join as a newcomer.
TEST(Decide, AVoidGenerationDoesNotHideTheStateOfANewcomer) {
  const Generation second = generation(2, {"a", "b", "c"}), third = generation(3, {"a", "b"});
  const Registration b{.member = {.id = "b"}, .accepted = third, .established = {}, .step = -1};
  const Registration c{.member = {.id = "c"}, .accepted = third, .established = second, .step = 7};
  MembershipView view{
      .present = {b, c}, .absent = {{"a", kEnded}}, .attested = {{third}, {second}}, .ended_with = {{"a", third}}};
  Decision decision = decide(view, {}, "next");
  ASSERT_EQ(decision.kind, Decision::Kind::form) << decision.reason;
  EXPECT_EQ(decision.answer.generation.number, 4);
  EXPECT_EQ(decision.answer.generation.rank_of("c"), decision.answer.source);
  EXPECT_THAT(decision.answer.generation.outdated, ElementsAre());
  // A process of the first generation makes no second lineage with its older state.
  view.present.push_back(member("d", generation(1, {"a", "c", "d"}), 9));
  decision = decide(view, {}, "next");
  ASSERT_EQ(decision.kind, Decision::Kind::form) << decision.reason;
  EXPECT_EQ(decision.answer.generation.rank_of("c"), decision.answer.source);
  EXPECT_THAT(decision.answer.generation.outdated, ElementsAre(decision.answer.generation.rank_of("d")));
}

// a and b made steps in generation 2. Then a decided generation 3 with the newcomer n, which did not get the answer: it
// may still be a group, for all that is known. Both ended.
TEST(Decide, AGenerationThatNeverBecameAGroupDoesNotHideAnOlderOne) {
  const Generation second = generation(2, {"a", "b"}), third = generation(3, {"a", "n"});
  const MembershipView view{.present = {member("c", kThree, 5), newcomer("n", kThree)},
                            .absent = {{"a", kEnded}, {"b", kEnded}},
                            .attested = {{third}, {second}},
                            .ended_with = {{"a", third}, {"b", second}}};
  EXPECT_EQ(decide(view, {}, "next").kind, Decision::Kind::wait);
}

// A registered process for which there is no room does not join, so it cannot vote.
TEST(Decide, OnlyThoseWhoJoinCountInTheQuorum) {
  const Generation old = generation(1, {"a", "b"}), grown = generation(2, {"a", "c", "d"});
  const MembershipView view{.present = {member("a", grown, 5), newcomer("c", grown), member("b", old, 5)},
                            .absent = {{"d", {Absence::Kind::silent, seconds(100)}}}};
  EXPECT_EQ(decide(view, {.max_ranks = 3}, "next").kind, Decision::Kind::form);
  EXPECT_EQ(decide(view, {.max_ranks = 1}, "next").kind, Decision::Kind::wait) << "c has no room";
}

// The leader had accepted its decision when the host of the other members lost power.
TEST(Decide, AGenerationThatAMemberHasLeftIsVoid) {
  const Generation second = generation(2, {"a", "x", "y"});
  const Absence silent{.kind = Absence::Kind::silent, .lasts = seconds(100)};
  Registration a = member("a", kThree, 5);
  a.accepted = second;
  MembershipView view{.present = {a, member("b", kThree, 5)}, .absent = {{"c", silent}, {"x", silent}, {"y", silent}}};
  const Decision decision = decide(view, {}, "next");
  ASSERT_EQ(decision.kind, Decision::Kind::form) << decision.reason;
  EXPECT_THAT(decision.answer.generation.ids(), ElementsAre("a", "b"));
  EXPECT_EQ(decision.answer.generation.number, 3) << "the host of a has accepted a generation 2";
  view.attested = {{second}};
  EXPECT_EQ(decide(view, {}, "next").kind, Decision::Kind::form)
      << "it is void, also if an ended member had accepted it";
  view.present[0].established = second;
  EXPECT_EQ(decide(view, {}, "next").kind, Decision::Kind::wait) << "its members may have made steps";
}

TEST(Decide, AGenerationIsVoidIfOneOfThePresentProcessesKnowsThat) {
  const Generation second = generation(2, {"b", "x"});
  MembershipView view{.present = {member("a", kThree, 5), member("c", kThree, 5)},
                      .absent = {{"b", kEnded}, {"x", kEnded}},
                      .attested = {{second}}};
  EXPECT_EQ(decide(view, {}, "next").kind, Decision::Kind::wait);
  view.present[1].void_ids = {second.id};
  EXPECT_EQ(decide(view, {}, "next").kind, Decision::Kind::form);
}

TEST(Decide, AGenerationIsNotVoidBecauseAProcessThatIsNotInItKnowsIt) {
  const Generation second = generation(2, {"x", "y", "z"});
  Registration a = member("a", kThree, 5);
  a.accepted = second;
  EXPECT_EQ(decide({.present = {a, member("b", kThree, 5), member("c", kThree, 5)}}, {}, "next").kind,
            Decision::Kind::wait);
}

// No process had established it when one was lost, but there is none before it to continue from.
TEST(Decide, TheFirstGenerationIsNeverVoid) {
  const auto left = [](const std::string& id) {
    Registration one = member(id, kThree, 0);
    one.established = {};
    return one;
  };
  const MembershipView view{
      .present = {left("a"), left("c")}, .absent = {{"b", kEnded}}, .ended_with = {{"b", Generation{}}}};
  const Decision decision = decide(view, {}, "next");
  ASSERT_EQ(decision.kind, Decision::Kind::form) << decision.reason;
  EXPECT_THAT(decision.answer.generation.ids(), ElementsAre("a", "c"));
}

// A member of the old generation has established a larger one: the next needs a quorum of both.
TEST(Decide, AlsoNeedsAQuorumOfTheNewestGeneration) {
  const Generation grown = generation(2, {"a", "x", "y", "z"});
  const MembershipView alone{.present = {member("a", grown, 5), member("b", generation(1, {"a", "b"}), 5)}};
  EXPECT_EQ(decide(alone, {}, "next").kind, Decision::Kind::wait);
  MembershipView with_x = alone;
  with_x.present.push_back(member("x", grown, 5));
  for (const char* id : {"y", "z"}) with_x.absent[id] = kEnded;
  EXPECT_EQ(decide(with_x, {}, "next").kind, Decision::Kind::form);
}

TEST(Decide, AStateFromAnOlderGenerationIsNotASource) {
  const Generation second = generation(2, {"b", "c"});
  Registration left_behind = member("a", kThree, 9);  // completed a step that the others discarded
  const Decision decision =
      decide({.present = {left_behind, member("b", second, 6), member("c", second, 6)}}, {}, "next");
  ASSERT_EQ(decision.kind, Decision::Kind::form);
  EXPECT_EQ(decision.answer.generation.members[static_cast<std::size_t>(decision.answer.source)].id, "b");
  EXPECT_TRUE(decision.answer.transfer);
  EXPECT_THAT(decision.answer.generation.outdated, ElementsAre(decision.answer.generation.rank_of("a")))
      << "it must not count if the source is lost before it has sent its state";
}

// A newcomer was in the newest generation, but never received the state. A member whose own attempt to join it failed
// has the state.
TEST(Decide, AMemberThatNeverEstablishedTheNewestGenerationIsASourceIfNoOtherIs) {
  const Generation second = generation(2, {"a", "x"});
  Registration a = member("a", kThree, 7);
  a.accepted = second;
  const Registration x = member("x", second, -1);
  Decision decision = decide({.present = {a, x}, .absent = {{"b", kEnded}, {"c", kEnded}}}, {}, "next");
  ASSERT_EQ(decision.kind, Decision::Kind::form) << decision.reason;
  EXPECT_EQ(decision.answer.generation.members[static_cast<std::size_t>(decision.answer.source)].id, "a");
  // Not if its state was outdated when that generation was decided: others had completed steps without it.
  Generation later = second;
  later.outdated = {0, 1};
  a.accepted = later;
  decision =
      decide({.present = {a, member("x", later, -1)}, .absent = {{"b", kEnded}, {"c", kEnded}}, .attested = {{later}}},
             {}, "next");
  EXPECT_EQ(decision.kind, Decision::Kind::give_up) << "a is the source";
  EXPECT_EQ(decision.reason, kStateLost);
  later.outdated = {1};
  a.accepted = later;
  decision = decide({.present = {a, member("x", later, -1)}, .absent = {{"b", kEnded}, {"c", kEnded}}}, {}, "next");
  EXPECT_EQ(decision.kind, Decision::Kind::form) << decision.reason;
  // Not if it was left behind: then others may have completed steps in that generation.
  a.accepted = kThree;
  const Generation without = generation(2, {"x", "y"});
  decision = decide({.present = {a, member("x", without, -1), member("y", without, -1)}}, {}, "next");
  EXPECT_EQ(decision.kind, Decision::Kind::give_up);
}

// a was stopped while s continued alone in generation 2, so it was outdated in generation 3 of a, s and the newcomer n.
// a failed to join it, and s ended. s2 has the state of generation 3.
TEST(Decide, AnOutdatedMemberOfTheNewestGenerationStaysOutdated) {
  Generation third = generation(3, {"s", "s2", "a", "n"});
  third.outdated = {2, 3};
  const Generation first = generation(1, {"a", "s"});
  const Registration a{.member = {.id = "a"}, .accepted = third, .established = first, .step = 9};
  const Decision decision =
      decide({.present = {a, member("s2", third, 7), member("n", third, -1)}, .absent = {{"s", kEnded}}}, {}, "next");
  ASSERT_EQ(decision.kind, Decision::Kind::form) << decision.reason;
  const Generation& next = decision.answer.generation;
  EXPECT_EQ(next.rank_of("s2"), decision.answer.source);
  EXPECT_THAT(next.outdated, ElementsAre(next.rank_of("a")));
}

TEST(Decide, WithoutAnyStateTheJobEnds) {
  const Decision decision =
      decide({.present = {member("a", kThree, -1), member("b", kThree, -1)}, .absent = {{"c", kEnded}}}, {}, "next");
  EXPECT_EQ(decision.kind, Decision::Kind::give_up);
  EXPECT_THAT(decision.reason, HasSubstr("snapshot"));
}

TEST(Decide, BelowTheMinimumTheJobWaitsAndThenEnds) {
  MembershipView view{.present = {member("a", kThree, 5), member("b", kThree, 5)}, .absent = {{"c", kEnded}}};
  const Policy policy{.min_ranks = 3, .quorum_timeout = seconds(10)};
  EXPECT_EQ(decide(view, policy, "next").kind, Decision::Kind::wait);
  view.elapsed = seconds(10);
  EXPECT_THAT(decide(view, policy, "next").reason, HasSubstr("at least 3"));
  EXPECT_EQ(decide(view, policy, "next").kind, Decision::Kind::give_up);
}

TEST(Decide, TheJobStaysTheSame) {
  Generation first = generation(1, {"a", "b"});
  first.job = "job";
  const Decision decision =
      decide({.present = {member("a", first, 3), newcomer("c", first)}, .absent = {{"b", kEnded}}}, {}, "fresh");
  ASSERT_EQ(decision.kind, Decision::Kind::form) << decision.reason;
  EXPECT_EQ(decision.answer.generation.number, 2);
  EXPECT_EQ(decision.answer.generation.job, "job");
}

}  // namespace
}  // namespace lockstep::membership
