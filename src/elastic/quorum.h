// Which part of a job may continue after a failure: a rule that no two disjoint parts can both satisfy.
//
// Some of a group's members are known to have ended while they were members (recovery.h explains when that is known):
// these no longer count. Others are only silent: stopped, or behind a cut link, where they may continue and consider
// the rest dead. So a part may continue only if it has more than half of all members that are not known to have ended,
// or exactly half of them including the first. Two parts that share no member cannot both have that, whatever each of
// them knows, provided that the members known to have ended have indeed ended and did not continue elsewhere before.
#pragma once

#include <set>
#include <span>
#include <string>

namespace lockstep::elastic {

struct Quorum {
  bool reached = false;
  int present = 0;
  int living = 0;      // members not known to have ended
  std::string reason;  // human-readable: "3 of the 4 that may still be alive are present"
};

// `members` in order, by id. Ids that are not members do not count. Without living members it is not reached.
Quorum count_quorum(std::span<const std::string> members, const std::set<std::string>& ended,
                    const std::set<std::string>& present);

}  // namespace lockstep::elastic
