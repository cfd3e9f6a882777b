// Which part of a job may continue after a failure: a rule that no two disjoint parts can both satisfy.
//
// Some of a group's members are attested to have ended while they were members (attester.h): these no longer count. All
// others do: one that does not answer, or whose address refuses connections, may continue and consider the rest dead.
// So a part may continue only if it has more than half of all members that are not attested to have ended, or exactly
// half of them including the first. Two parts that share no member cannot both have that, whatever each of them knows,
// provided that the members attested to have ended did not continue elsewhere before. A group that has a witness
// (witness.h) leaves the choice between two halves to it, and not to the first member.
#pragma once

#include <cstdint>
#include <set>
#include <span>
#include <string>

namespace lockstep::membership {

struct Quorum {
  bool reached = false;
  bool needs_vote = false;  // it is reached only with the vote of the witness
  int present = 0;
  int living = 0;      // members not attested to have ended
  std::string reason;  // human-readable: "3 of the 4 that may still be alive are present"
};

// What breaks a tie.
enum class TieBreaker : std::uint8_t { first_member, witness, lost_witness };

// `members` in order, by id. Ids that are not members do not count. Without living members it is not reached.
Quorum count_quorum(std::span<const std::string> members, const std::set<std::string>& ended,
                    const std::set<std::string>& present, TieBreaker tie_breaker = TieBreaker::first_member);

}  // namespace lockstep::membership
