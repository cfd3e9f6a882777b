// Ends what is left of the ranks when their launcher is killed, and attests their end and that of the launcher.
//
// The kernel kills each rank with its launcher (PR_SET_PDEATHSIG), but not the processes that a rank started. The
// guard is a small process in a session of its own that knows the process group of every rank; when the launcher
// ends, for whatever reason, it kills the groups and removes the launcher's folder. Not covered: a process that left
// its rank's group by itself (setsid, setpgid), and the death of the guard before the launcher.
//
// In a job of several nodes it also serves the site's attester (membership/attester.h) from the start. After the end of
// the launcher it waits until that and the ranks have really ended, attests it, and stays for GuardOptions::stay so
// that the other nodes can ask.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>

#include "base/unique_fd.h"
#include "lockstep/base/secret.h"
#include "lockstep/base/status.h"

namespace lockstep::launch {

struct GuardOptions {
  std::string folder;  // of the launcher; removed when the launcher was killed
  // What the ranks, and the launcher itself, have accepted (membership/roster.h).
  std::string rank_roster = {};
  std::string node_roster = {};
  Secret secret = {};  // of the attester
  std::chrono::milliseconds stay{10'000};
};

class Guard {
 public:
  // Forks: call it before this process has threads.
  static Result<Guard> start(const GuardOptions& options);
  Guard(Guard&&) noexcept = default;
  Guard& operator=(Guard&&) = delete;
  // Ends the guard, which then does nothing.
  ~Guard();

  // Serves the attester on a new port of `host`, an address of this machine; returns its address, "host:port".
  Result<std::string> open_attester(const std::string& host) const;

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
