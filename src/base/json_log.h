// Log lines as JSON, one object in each line, for programs that collect logs: LOCKSTEP_LOG_FORMAT=json.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep {

// True if LOCKSTEP_LOG_FORMAT is "json", at the first call.
bool logs_as_json();

//   {"time":"2026-11-18T20:31:07.250Z","level":"warning","program":"lockstep","host":"a","pid":17,"rank":2,"generation":5,"message":"..."}
//
// Without the end of the line. `rank` -1 and `generation` 0 are left out. `program`: who reports it, "lockstep" or
// "lockstep run".
std::string json_log_line(std::string_view program, std::string_view level, int rank, std::int64_t generation,
                          std::string_view message);

}  // namespace lockstep
