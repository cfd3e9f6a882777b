// The roster: a file that the processes of one site (those that one launcher started) share. It holds the newest
// generation that any of them has accepted, so that a process that is started later can find the members, and one that
// was left behind can detect that the others continued. Launchers copy it between nodes as an opaque text; they use
// only its first line, an increasing number.
#pragma once

#include <string>

#include "membership/records.h"
#include "lockstep/base/status.h"

namespace lockstep::membership {

struct Roster {
  Generation generation = {};
  bool finished = false;  // the job completed
  friend bool operator==(const Roster&, const Roster&) = default;
};

std::string format(const Roster& roster);
Result<Roster> parse_roster(std::string_view text);

// Returns generation 0 if there is no such file yet.
Result<Roster> read_roster(const std::string& path);
// Writes `roster` unless the file holds a newer generation, or another one with the same number: then at most one
// generation of each number is accepted on a site, and the file never goes backwards. A finished roster is newer than a
// running one. Returns what the file holds now: `roster`, or what forbids it. Concurrent writers wait for each other
// (flock on "<path>.lock").
Result<Roster> offer_roster(const std::string& path, const Roster& roster);

}  // namespace lockstep::membership
