// Ends what is left of the ranks when their launcher is killed.
//
// The kernel kills each rank with its launcher (PR_SET_PDEATHSIG), but not the processes that a rank started. The
// guard is a small process in a session of its own that knows the process group of every rank; when the launcher
// ends, for whatever reason, it kills the groups and removes the launcher's folder. Not covered: a process that left
// its rank's group by itself (setsid, setpgid), and the death of the guard before the launcher.
#pragma once

#include <sys/types.h>

#include <string>

#include "base/unique_fd.h"
#include "lockstep/base/status.h"

namespace lockstep::launch {

class Guard {
 public:
  // Forks: call it before this process has threads. `folder` is removed when the launcher was killed.
  static Result<Guard> start(const std::string& folder);
  Guard(Guard&&) noexcept = default;
  Guard& operator=(Guard&&) = delete;
  // Ends the guard, which then does nothing.
  ~Guard();

  // The descriptor for add(), which a child calls between fork and exec.
  int fd() const { return link_.get(); }
  // Registers the group `pgid`, which is killed when the launcher ends. Async-signal-safe: a new child calls it itself,
  // so that it is registered before it runs anything.
  static void add(int fd, pid_t pgid);
  // Removes a group that has ended or that the guard must no longer kill. Call it before the group's leader is reaped,
  // so that the number cannot have been reused.
  void remove(pid_t pgid) const;

 private:
  Guard(UniqueFd link, pid_t pid) : link_(std::move(link)), pid_(pid) {}
  UniqueFd link_;
  pid_t pid_;
};

}  // namespace lockstep::launch
