// What the kernel reports of a process of this host.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "lockstep/base/deadline.h"
#include "lockstep/base/status.h"

namespace lockstep {

// A process for all time: pids are reused, but not with the same start time.
struct ProcessIdentity {
  std::int64_t pid = 0;
  std::int64_t started = 0;  // in clock ticks after the machine's start; 0: unknown
  friend bool operator==(const ProcessIdentity&, const ProcessIdentity&) = default;
};

ProcessIdentity this_process();
// The process that has this pid now, which may be a zombie; nothing if there is none.
std::optional<ProcessIdentity> find_process(std::int64_t pid);

// Which pids this process sees: the machine since its last start, and the pid namespace. Processes in which this is
// equal mean the same process by the same pid. Empty if it is unknown.
std::string process_space();

// True if all threads of that process have ended. The pid must be one of this process' space. False if it runs, or if
// that is unknown.
bool has_ended(const ProcessIdentity& process);
// Kills the process and waits until it has ended. Ok if it had ended before.
Status end_process(const ProcessIdentity& process, Deadline deadline);

// For messages: "its process has ended" (also while it is exiting), or "its process still exists".
std::string process_state(std::int64_t pid);

}  // namespace lockstep
