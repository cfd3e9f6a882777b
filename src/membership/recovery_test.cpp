#include "membership/recovery.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "membership/attester.h"

namespace lockstep::membership {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

const Generation kTwo{.number = 3, .id = "g3", .members = {{.id = "a"}, {.id = "b"}}};

Recovery recovery_of(const std::string& id, std::int64_t step, TimePoint now) {
  return Recovery({.member = {.id = id}, .accepted = kTwo, .established = step < 0 ? Generation{} : kTwo, .step = step},
                  {.silent_timeout = seconds(5), .quorum_timeout = seconds(300)}, now, [] { return "fresh"; });
}

// Performs probes with this result until something else is to be done.
Action after_probes(Recovery& recovery, const ProbeResult& result, TimePoint now) {
  Action action = recovery.next(now);
  for (int i = 0; i < 10 && action.kind == Action::Kind::probe; ++i) {
    for (const Member& member : action.members) recovery.on_probe(member, result, now);
    action = recovery.next(now);
  }
  return action;
}

TEST(Recovery, ANewcomerWaitsForUnreachableMembers) {
  const TimePoint start{};
  Recovery recovery = recovery_of("new", -1, start);
  EXPECT_EQ(after_probes(recovery, {.kind = ProbeResult::Kind::refused}, start).kind, Action::Kind::refresh);
  EXPECT_EQ(after_probes(recovery, {.kind = ProbeResult::Kind::refused}, start + seconds(100)).kind,
            Action::Kind::refresh);
}

TEST(Recovery, ANewcomerGivesUpSoonIfAllMembersAreAttestedToHaveEnded) {
  const TimePoint start{};
  Recovery recovery = recovery_of("new", -1, start);
  const ProbeResult ended{.kind = ProbeResult::Kind::ended, .accepted = {kTwo}};
  EXPECT_EQ(after_probes(recovery, ended, start).kind, Action::Kind::refresh);
  const Action action = after_probes(recovery, ended, start + seconds(6));
  EXPECT_EQ(action.kind, Action::Kind::give_up);
  EXPECT_EQ(action.answer.reason, kStateLost);
}

// The host of the ended member had accepted a generation without this process.
TEST(Recovery, AMemberThatWasLeftBehindBecomesANewcomer) {
  const TimePoint start{};
  Recovery recovery = recovery_of("b", 7, start);
  const Generation newer{.number = 4, .id = "g4", .members = {{.id = "a"}, {.id = "c"}}};
  const Action first = recovery.next(start);
  ASSERT_EQ(first.kind, Action::Kind::probe);
  ASSERT_EQ(first.members.at(0).id, "a");
  recovery.on_probe(first.members.at(0), {.kind = ProbeResult::Kind::ended, .accepted = {newer}}, start);
  EXPECT_TRUE(recovery.is_newcomer());
  const Action second = recovery.next(start);
  EXPECT_EQ(second.kind, Action::Kind::probe);
  EXPECT_EQ(second.members.at(0).id, "c");
}

// The first member accepted a generation without this process, and ended. Whether that one counts, the leader decides.
TEST(Recovery, AMemberThatWasLeftBehindRegistersTheGenerationAndTheStepOfItsState) {
  const TimePoint now{};
  const Generation newer{.number = 4, .id = "g4", .members = {{.id = "a"}, {.id = "c"}}};
  Recovery recovery = recovery_of("b", 7, now);
  recovery.on_probe({.id = "a"}, {.kind = ProbeResult::Kind::ended, .accepted = {newer, kTwo}}, now);
  EXPECT_TRUE(recovery.is_newcomer());
  EXPECT_EQ(recovery.registration().accepted, newer);
  EXPECT_EQ(recovery.registration().established, kTwo);
  EXPECT_EQ(recovery.registration().step, 7);
}

TEST(Recovery, TheFirstMemberLeadsWhenTheOthersAreOutOfReachAndNeedsAQuorum) {
  const TimePoint start{};
  Recovery second = recovery_of("b", 7, start);
  EXPECT_EQ(after_probes(second, {.kind = ProbeResult::Kind::refused}, start).kind, Action::Kind::collect);
  second.on_registrations({}, start);
  EXPECT_NE(second.next(start).kind, Action::Kind::join) << "half without the first is not enough";
  Recovery first = recovery_of("a", 7, start);
  EXPECT_EQ(first.next(start).kind, Action::Kind::collect);
  first.on_registrations({}, start);
  const Action probe = first.next(start);
  ASSERT_EQ(probe.kind, Action::Kind::probe);
  first.on_probe(probe.members.at(0), {.kind = ProbeResult::Kind::refused}, start);
  EXPECT_EQ(first.next(start).kind, Action::Kind::collect);
  first.on_registrations({}, start);
  EXPECT_EQ(first.next(start).kind, Action::Kind::join);
}

// "b" has learned of generation 4 and follows its first member; "c" belongs to it, too, but has not heard of it.
TEST(Recovery, AProcessThatIsSentAwayLearnsWhomTheOtherOneFollows) {
  const TimePoint now{};
  const Generation three{.number = 3, .id = "g3", .members = {{.id = "a"}, {.id = "b"}, {.id = "c"}, {.id = "d"}}};
  const Generation four{.number = 4, .id = "g4", .members = {{.id = "d"}, {.id = "c"}}};
  Recovery recovery({.member = {.id = "c"}, .accepted = three, .established = three, .step = 7}, {}, now,
                    [] { return "fresh"; });
  const Action follow = after_probes(recovery, {.kind = ProbeResult::Kind::answered}, now);
  ASSERT_EQ(follow.kind, Action::Kind::follow);
  recovery.on_follow(follow.member, {.answer = Answer{.kind = Answer::Kind::again, .generation = four}}, now);
  const Action next = after_probes(recovery, {.kind = ProbeResult::Kind::answered}, now);
  EXPECT_EQ(next.kind, Action::Kind::follow);
  EXPECT_EQ(next.member.id, "d");
  EXPECT_EQ(recovery.registration().step, 7) << "it is a member: its state counts";
}

// "c" ended without having accepted generation 4. "n" asked its launcher, and knows that this generation is void. "b"
// asked the kernel later, when the roster had been copied to the host of "c". Without that knowledge, the two would
// follow each other for ever.
TEST(Recovery, AProcessLearnsWhichGenerationsAreVoidFromTheOneThatSendsItAway) {
  const TimePoint now{};
  const Generation three{.number = 3, .id = "g3", .members = {{.id = "a"}, {.id = "c"}, {.id = "b"}}};
  const Generation four{.number = 4, .id = "g4", .members = {{.id = "a"}, {.id = "c"}, {.id = "n"}}};
  const auto leads_after = [&](const Answer& answer) {
    Recovery recovery({.member = {.id = "b"}, .accepted = three, .established = three, .step = 7}, {}, now,
                      [] { return "fresh"; });
    for (int actions = 0; actions < 20; ++actions) {
      const Action action = recovery.next(now);
      if (action.kind == Action::Kind::collect) return true;
      for (const Member& member : action.members) {
        ProbeResult result{.kind = ProbeResult::Kind::ended, .accepted = {four, three}};
        if (member.id == "n") result = {.kind = ProbeResult::Kind::answered, .accepted = {three}};
        recovery.on_probe(member, result, now);
      }
      if (action.kind == Action::Kind::follow) recovery.on_follow(action.member, {.answer = answer}, now);
    }
    return false;
  };
  Answer again{.kind = Answer::Kind::again, .generation = three};
  EXPECT_FALSE(leads_after(again));
  again.void_ids = {"g4"};
  EXPECT_TRUE(leads_after(again));
}

TEST(Recovery, AProcessRegistersWhichGenerationsItKnowsToBeVoid) {
  const TimePoint now{};
  const Generation next{.number = 6, .id = "g6", .members = {{.id = "a"}, {.id = "x"}}};
  Recovery recovery({.member = {.id = "b"}, .accepted = kTwo, .established = kTwo, .step = 7}, {}, now,
                    [] { return "fresh"; });
  recovery.on_probe({.id = "a"}, {.kind = ProbeResult::Kind::ended, .accepted = {next, kTwo}}, now);
  EXPECT_TRUE(recovery.registration().void_ids.empty());
  recovery.on_probe({.id = "x"}, {.kind = ProbeResult::Kind::ended, .accepted = {kTwo}}, now);
  EXPECT_EQ(recovery.registration().void_ids, std::vector<std::string>{"g6"});
}

Generation generation_of(int members) {
  Generation generation{.number = 3, .id = "g3"};
  for (int i = 0; i < members; ++i) generation.members.push_back({.id = std::to_string(i)});
  return generation;
}

TEST(Recovery, AFollowerReadsItsAnswerAlthoughProbingTheMembersBeforeTheLeaderTakesLong) {
  TimePoint now{};
  const Generation generation = generation_of(60);
  Recovery recovery({.member = {.id = "59"}, .accepted = generation, .established = generation, .step = 7},
                    {.silent_timeout = seconds(2)}, now, [] { return "fresh"; });
  int followed = 0;
  for (int actions = 0; actions < 100 && followed < 5; ++actions) {
    const Action action = recovery.next(now);
    now += seconds(1);
    for (const Member& member : action.members) {
      const bool lives = member.id == "58";
      recovery.on_probe(member, {.kind = lives ? ProbeResult::Kind::answered : ProbeResult::Kind::silent}, now);
    }
    if (action.kind != Action::Kind::follow) continue;
    ++followed;
    recovery.on_follow(action.member, {}, now);
  }
  EXPECT_EQ(followed, 5);
}

// A host with many ranks lost its power: probes of a member that does not answer take long.
TEST(Recovery, AProcessLeadsAlthoughProbingTheMembersBeforeItTakesLongerThanTheirProbeInterval) {
  TimePoint now{};
  const Generation generation = generation_of(9);
  Recovery recovery({.member = {.id = "4"}, .accepted = generation, .established = generation, .step = 7},
                    {.silent_timeout = seconds(2)}, now, [] { return "fresh"; });
  std::vector<Registration> others;
  for (int i = 5; i < 9; ++i)
    others.push_back(
        {.member = {.id = std::to_string(i)}, .accepted = generation, .established = generation, .step = 7});
  for (int actions = 0; actions < 40; ++actions) {
    const Action action = recovery.next(now);
    if (action.kind == Action::Kind::join) {
      EXPECT_EQ(action.answer.generation.members.size(), 5u);
      EXPECT_LE(now - TimePoint{}, seconds(10));
      return;
    }
    if (action.kind == Action::Kind::probe) {
      now += seconds(1);
      for (const Member& member : action.members) {
        recovery.on_probe(member, {.kind = ProbeResult::Kind::silent}, now);
      }
    } else {
      ASSERT_EQ(action.kind, Action::Kind::collect);
      recovery.on_registrations(others, now += action.pause);
    }
  }
  FAIL() << "still probing after " << std::chrono::duration_cast<seconds>(now - TimePoint{}).count() << " s";
}

TEST(Recovery, ALeaderProbesEachOfManyAbsentMembers) {
  TimePoint now{};
  const Generation generation = generation_of(100);
  Recovery recovery({.member = {.id = "0"}, .accepted = generation, .established = generation, .step = 7},
                    {.silent_timeout = seconds(2)}, now, [] { return "fresh"; });
  std::set<std::string> probed;
  for (int actions = 0; actions < 400 && probed.size() < 99; ++actions) {
    const Action action = recovery.next(now);
    now += milliseconds(5) + action.pause;
    if (action.kind == Action::Kind::probe) {
      for (const Member& member : action.members) {
        probed.insert(member.id);
        recovery.on_probe(member, {.kind = ProbeResult::Kind::refused}, now);
      }
    } else {
      ASSERT_EQ(action.kind, Action::Kind::collect);
      recovery.on_registrations({}, now);
    }
  }
  EXPECT_EQ(probed.size(), 99u);
}

// "b" decided generation 4 with the newcomer "d", which ended before it could accept it. So generation 3 counts, which
// only the hosts of ended processes know; "c" belongs to it.
TEST(Recovery, ALeaderProbesTheMembersOfAGenerationThatOnlyTheHostsOfEndedMembersHadAccepted) {
  const TimePoint now{};
  const Generation two{.number = 2, .id = "g2", .members = {{.id = "a"}, {.id = "b"}}};
  const Generation three{.number = 3, .id = "g3", .members = {{.id = "a"}, {.id = "b"}, {.id = "c"}}};
  const Generation four{.number = 4, .id = "g4", .members = {{.id = "b"}, {.id = "d"}}};
  Recovery recovery({.member = {.id = "b"}, .accepted = four, .established = two, .step = 7}, {}, now,
                    [] { return "fresh"; });
  for (int actions = 0; actions < 20; ++actions) {
    const Action action = recovery.next(now);
    if (action.kind == Action::Kind::join) {
      EXPECT_EQ(action.answer.generation.number, 5);
      EXPECT_EQ(action.answer.generation.ids(), std::vector<std::string>{"b"});
      return;
    }
    for (const Member& member : action.members) {
      recovery.on_probe(member, {.kind = ProbeResult::Kind::ended, .accepted = {member.id == "c" ? two : three}}, now);
    }
    if (action.kind == Action::Kind::collect) recovery.on_registrations({}, now);
  }
  FAIL() << recovery.waits_for();
}

// The host of the first member had accepted a generation without this process, of which another member never did.
TEST(Recovery, AMemberThatOnlyAVoidGenerationLeftBehindKeepsItsState) {
  const TimePoint now{};
  const Generation next{.number = 6, .id = "g6", .members = {{.id = "a"}, {.id = "x"}}};
  Recovery recovery({.member = {.id = "b"}, .accepted = kTwo, .established = kTwo, .step = 7}, {}, now,
                    [] { return "fresh"; });
  for (int actions = 0; actions < 20; ++actions) {
    const Action action = recovery.next(now);
    if (action.kind == Action::Kind::join) {
      EXPECT_EQ(action.answer.generation.ids(), std::vector<std::string>{"b"});
      EXPECT_EQ(action.answer.generation.number, 7) << "the host of a has accepted a generation 6";
      EXPECT_EQ(recovery.registration().step, 7);
      return;
    }
    for (const Member& member : action.members) {
      ProbeResult ended{.kind = ProbeResult::Kind::ended};
      if (member.id == "a") ended.accepted = {next};
      recovery.on_probe(member, ended, now);
    }
    if (action.kind == Action::Kind::collect) recovery.on_registrations({}, now);
  }
  FAIL() << recovery.waits_for();
}

// Each of these generations is void, because x ended without having accepted any. But if an attestation may not show
// all, the oldest counts: there may be another one before it that is not void.
TEST(Recovery, WhatAnAttestationMayNotShowIsNotIgnored) {
  const TimePoint now{};
  const Generation first{.number = 1, .id = "g1", .members = {{.id = "b"}, {.id = "a"}}};
  const auto joins_after = [&](std::size_t accepted) {
    std::vector<Generation> newest_first;
    for (std::size_t i = accepted; i > 0; --i) {
      newest_first.push_back({.number = static_cast<std::int64_t>(i) + 1,
                              .id = "void" + std::to_string(i),
                              .members = {{.id = "y"}, {.id = "b"}, {.id = "x"}}});
    }
    Recovery recovery({.member = {.id = "b"}, .accepted = first, .established = first, .step = 7}, {}, now,
                      [] { return "fresh"; });
    for (int actions = 0; actions < 40; ++actions) {
      const Action action = recovery.next(now);
      if (action.kind == Action::Kind::join) return true;
      for (const Member& member : action.members) {
        ProbeResult result{.kind = ProbeResult::Kind::ended};
        if (member.id == "a") result.accepted = newest_first;
        if (member.id == "y") result.kind = ProbeResult::Kind::silent;
        recovery.on_probe(member, result, now);
      }
      if (action.kind == Action::Kind::collect) recovery.on_registrations({}, now);
    }
    return false;
  };
  EXPECT_TRUE(joins_after(Attestation::kGenerations - 1));
  EXPECT_FALSE(joins_after(Attestation::kGenerations));
}

// A witness also has the registers of other jobs, and of the launchers of this one.
TEST(Recovery, ALeaderProbesTheMembersOfVotesOnlyInItsOwnRegister) {
  const TimePoint now{};
  Generation two = kTwo;
  two.witness = "w/job";
  Recovery recovery({.member = {.id = "a"}, .accepted = two, .established = two, .step = 7}, {}, now,
                    [] { return "fresh"; });
  const auto vote = [](const std::string& id) { return Generation{.number = 4, .id = "g4", .members = {{.id = id}}}; };
  recovery.on_witness(WitnessView{.id = "w", .votes = {{"w/job", vote("c")}, {"w/other", vote("stranger")}}});
  std::set<std::string> probed;
  for (int actions = 0; actions < 10; ++actions) {
    const Action action = recovery.next(now);
    for (const Member& member : action.members) {
      probed.insert(member.id);
      recovery.on_probe(member, {.kind = ProbeResult::Kind::silent}, now);
    }
    if (action.kind == Action::Kind::collect) recovery.on_registrations({}, now);
  }
  EXPECT_EQ(probed, (std::set<std::string>{"b", "c"}));
}

// "p" and "a" left generation 4, and then generation 5 when "a" ended. "x" and "y" do not answer. The host of "a" had
// accepted both, and generation 3, in which "p" has the state.
TEST(Recovery, AProcessRemembersWhichGenerationsItHasLeft) {
  const TimePoint now{};
  const Generation three{.number = 3, .id = "g3", .members = {{.id = "p"}, {.id = "a"}}};
  const Generation four{.number = 4, .id = "g4", .members = {{.id = "a"}, {.id = "p"}, {.id = "x"}, {.id = "y"}}};
  const Generation five{.number = 5, .id = "g5", .members = {{.id = "a"}, {.id = "p"}, {.id = "x"}}};
  const auto fresh = [] { return "fresh"; };
  Recovery first({.member = {.id = "p"}, .accepted = four, .established = three, .step = 7}, {}, now, fresh);
  EXPECT_EQ(first.registration().void_ids, std::vector<std::string>{"g4"});
  Recovery second({.member = {.id = "p"},
                   .accepted = five,
                   .established = three,
                   .step = 7,
                   .void_ids = first.registration().void_ids},
                  {}, now, fresh);
  EXPECT_EQ(second.registration().void_ids, (std::vector<std::string>{"g4", "g5"}));
  for (int actions = 0; actions < 20; ++actions) {
    const Action action = second.next(now + seconds(actions));
    if (action.kind == Action::Kind::join) {
      EXPECT_EQ(action.answer.generation.ids(), std::vector<std::string>{"p"});
      return;
    }
    for (const Member& member : action.members) {
      ProbeResult result;
      if (member.id == "a") result = {.kind = ProbeResult::Kind::ended, .accepted = {five, four, three}};
      second.on_probe(member, result, now + seconds(actions));
    }
    if (action.kind == Action::Kind::collect) second.on_registrations({}, now + seconds(actions));
  }
  FAIL() << second.waits_for();
}

TEST(Recovery, NeitherAnEstablishedGenerationNorTheFirstIsTakenForOneThatWasLeft) {
  const Generation first{.number = 1, .id = "g1", .members = {{.id = "a"}, {.id = "b"}}};
  const auto fresh = [] { return "fresh"; };
  EXPECT_TRUE(recovery_of("b", 7, {}).registration().void_ids.empty());
  EXPECT_TRUE(recovery_of("new", -1, {}).registration().void_ids.empty());
  const Recovery recovery({.member = {.id = "b"}, .accepted = first, .established = {}, .step = 0}, {}, {}, fresh);
  EXPECT_TRUE(recovery.registration().void_ids.empty());
}

TEST(Recovery, OnlySoManyVoidGenerationsAreKept) {
  Registration self{.member = {.id = "b"}, .accepted = kTwo, .established = {}, .step = 7};
  for (int i = 0; i < 1000; ++i) self.void_ids.push_back("v" + std::to_string(i));
  const Recovery recovery(self, {}, {}, [] { return "fresh"; });
  EXPECT_EQ(recovery.registration().void_ids.size(), kKeptVoidIds);
  EXPECT_EQ(recovery.registration().void_ids.back(), "g3") << "the newest";
}

// "b" left its generation 4, of which "x" does not answer. Another leader used that number, too.
TEST(Recovery, AProcessThatHasLeftItsGenerationLearnsAnotherOneOfThatNumber) {
  const TimePoint now{};
  const Generation three{.number = 3, .id = "g3", .members = {{.id = "b"}, {.id = "c"}}};
  const Generation four{.number = 4, .id = "g4", .members = {{.id = "x"}, {.id = "b"}}};
  const Generation other{.number = 4, .id = "other", .members = {{.id = "c"}, {.id = "d"}}};
  Recovery recovery({.member = {.id = "b"}, .accepted = four, .established = three, .step = 7}, {}, now,
                    [] { return "fresh"; });
  recovery.on_probe({.id = "x"}, {.kind = ProbeResult::Kind::silent}, now);
  recovery.on_registrations({{.member = {.id = "n"}, .accepted = other, .established = {}, .step = -1}}, now);
  EXPECT_EQ(recovery.registration().accepted.id, "other");
  EXPECT_EQ(recovery.registration().void_ids, std::vector<std::string>{"g4"});
  const Action action = recovery.next(now);
  ASSERT_EQ(action.kind, Action::Kind::probe);
  EXPECT_EQ(action.members.at(0).id, "c");
  // Its own counts if it has established it.
  Recovery established({.member = {.id = "b"}, .accepted = four, .established = four, .step = 7}, {}, now,
                       [] { return "fresh"; });
  established.on_probe({.id = "x"}, {.kind = ProbeResult::Kind::answered, .accepted = {other}}, now);
  EXPECT_EQ(established.registration().accepted.id, "g4");
}

TEST(Recovery, AGenerationThatManyReportIsRememberedOnce) {
  const TimePoint now{};
  const Generation next{.number = 6, .id = "g6", .members = {{.id = "a"}, {.id = "x"}}};
  Recovery recovery = recovery_of("b", 7, now);
  recovery.on_probe({.id = "x"}, {.kind = ProbeResult::Kind::ended, .accepted = {kTwo}}, now);
  const Registration a{.member = {.id = "a"}, .accepted = next, .established = kTwo, .step = 7};
  for (int i = 0; i < 100; ++i) recovery.on_registrations({a}, now);
  EXPECT_EQ(recovery.registration().void_ids, std::vector<std::string>{"g6"});
  EXPECT_LE(recovery.known_generations(), 2u);
}

// The host of the ended "a" had accepted another generation with the number of the one that "b" has established.
TEST(Recovery, ALeaderProbesTheMembersOfAnotherGenerationWithTheNumberOfItsOwn) {
  const TimePoint now{};
  const Generation other{.number = 3, .id = "other", .members = {{.id = "a"}, {.id = "z"}, {.id = "b"}}};
  Recovery recovery = recovery_of("b", 7, now);
  std::set<std::string> probed;
  for (int actions = 0; actions < 20; ++actions) {
    const Action action = recovery.next(now);
    if (action.kind == Action::Kind::join) break;
    for (const Member& member : action.members) {
      probed.insert(member.id);
      ProbeResult ended{.kind = ProbeResult::Kind::ended, .accepted = {other}};
      recovery.on_probe(member, ended, now);
    }
    if (action.kind == Action::Kind::collect) recovery.on_registrations({}, now);
  }
  EXPECT_EQ(probed, (std::set<std::string>{"a", "z"}));
  EXPECT_EQ(recovery.next(now).kind, Action::Kind::join) << recovery.waits_for();
}

}  // namespace
}  // namespace lockstep::membership
