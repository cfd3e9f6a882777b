// The roster: a file that the processes of one site (those that one launcher started) share. It holds the newest
// generation that any of them has accepted, so that a process that is started later can find the members, and one that
// was left behind can detect that the others continued. Launchers copy it between nodes as an opaque text; they use
// only its first line, an increasing number.
#pragma once

#include <string>

#include "elastic/records.h"
#include "lockstep/base/status.h"

namespace lockstep::elastic {

struct Roster {
  Generation generation = {};
  bool finished = false;  // the job completed
};

std::string format(const Roster& roster);
Result<Roster> parse_roster(std::string_view text);

// Returns generation 0 if there is no such file yet.
Result<Roster> read_roster(const std::string& path);
// Replaces the file atomically, unless it holds a newer generation. Concurrent writers wait for each
// other (flock on "<path>.lock").
Status write_roster(const std::string& path, const Roster& roster);

}  // namespace lockstep::elastic
