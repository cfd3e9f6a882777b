#include "membership/recovery.h"

#include <gtest/gtest.h>

namespace lockstep::membership {
namespace {

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
    recovery.on_probe(action.member, result, now);
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
  const ProbeResult ended{.kind = ProbeResult::Kind::ended, .accepted = kTwo};
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
  ASSERT_EQ(first.member.id, "a");
  recovery.on_probe(first.member, {.kind = ProbeResult::Kind::ended, .accepted = newer}, start);
  EXPECT_TRUE(recovery.is_newcomer());
  EXPECT_EQ(recovery.registration().step, -1);
  const Action second = recovery.next(start);
  EXPECT_EQ(second.kind, Action::Kind::probe);
  EXPECT_EQ(second.member.id, "c");
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
  first.on_probe(probe.member, {.kind = ProbeResult::Kind::refused}, start);
  EXPECT_EQ(first.next(start).kind, Action::Kind::collect);
  first.on_registrations({}, start);
  EXPECT_EQ(first.next(start).kind, Action::Kind::join);
}

}  // namespace
}  // namespace lockstep::membership
