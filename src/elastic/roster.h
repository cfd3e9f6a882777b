// The roster: a file that the processes of one site (those that one launcher started) share. It holds the newest
// generation that any of them has accepted, so that a process that is started later knows whom to ask, and so that
// one that was left behind cannot miss that the others went on. Launchers pass it on between nodes without
// understanding it: only its first line, a number that grows, is their business.
#pragma once

#include <string>

#include "elastic/records.h"
#include "lockstep/base/status.h"

namespace lockstep::elastic {

struct Roster {
  Generation generation = {};
  bool finished = false;  // the job has ended well
};

std::string format(const Roster& roster);
Result<Roster> parse_roster(std::string_view text);

// Generation 0 where there is no such file yet.
Result<Roster> read_roster(const std::string& path);
// Replaces the file atomically, unless it holds a newer one. Processes that write at the same time wait for each
// other (flock on "<path>.lock").
Status write_roster(const std::string& path, const Roster& roster);

}  // namespace lockstep::elastic
