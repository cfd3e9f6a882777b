// The roster of a site: what the processes that one launcher started have accepted. A process that is started later
// finds the members in it, one that was left behind detects that the others continued, and after the end of a process
// it shows what the process may have joined (attester.h). Launchers copy rosters between hosts as opaque texts; they
// use only the first line, an increasing number.
//
// Each accepted generation is a file of its own, "<path>.<number>", which is created with all of its content and never
// changed. So at most one generation of each number is accepted on a site, the newest number never decreases, and there
// is no lock that a stopped process could hold. "<path>.finished" exists when the job is done.
#pragma once

#include <string>
#include <vector>

#include "lockstep/base/status.h"
#include "membership/records.h"

namespace lockstep::membership {

struct Roster {
  Generation generation = {};
  bool finished = false;  // the job completed
  friend bool operator==(const Roster&, const Roster&) = default;
};

std::string format(const Roster& roster);
Result<Roster> parse_roster(std::string_view text);

// The newest; generation 0 if there is none yet.
Result<Roster> read_roster(const std::string& path);
// The accepted generations, newest first, at most `count`. Old ones are removed, but more than 16 are kept.
Result<std::vector<Generation>> read_accepted(const std::string& path, std::size_t count);
// The number of the newest accepted generation; 0 if there is none yet. Reads no file.
Result<std::int64_t> newest_number(const std::string& path);
// Ok if the site could accept a generation now: not on a full or read-only disk. Leaves nothing behind.
Status check_writable(const std::string& path);
// Accepts `roster`, unless there is a newer generation, another one with the same number, or the job is done. Returns
// the newest roster: `roster`, or what forbids it. A process may act on a generation only after this has returned it.
Result<Roster> offer_roster(const std::string& path, const Roster& roster);

}  // namespace lockstep::membership
