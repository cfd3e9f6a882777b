// Who may go on after a failure: the rule that no two parts of a job can both satisfy.
//
// Some of a group's members are known to have ended (their connections were closed by their kernel, their port
// refuses): these no longer count. Others are only silent: stopped, or behind a cut link, where they may well go on
// and take the rest for dead. So a part may go on only if it has more than half of all members that are not known
// to have ended, or exactly half of them and the first one. Two parts that share no member cannot both have that,
// whatever each of them knows, as long as what is known to have ended has ended.
#pragma once

#include <set>
#include <span>
#include <string>

namespace lockstep::elastic {

struct Quorum {
  bool reached = false;
  int present = 0;
  int living = 0;      // members not known to have ended
  std::string reason;  // for people: "3 of the 4 that may still live are here"
};

// `members` in order, by id. Ids that are not members do not count. Nobody living: not reached.
Quorum count_quorum(std::span<const std::string> members, const std::set<std::string>& ended,
                    const std::set<std::string>& present);

}  // namespace lockstep::elastic
