// The process of a rank, from its start to its end.
#pragma once

#include <sys/resource.h>
#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/unique_fd.h"
#include "launch/process/guard.h"
#include "lockstep/base/status.h"

namespace lockstep::launch {

struct ProcessSpec {
  std::string path;
  std::vector<std::string> arguments;    // argv
  std::vector<std::string> environment;  // "NAME=value"
  std::vector<int> cores;                // empty: any
  rlimit open_files{};                   // how many the process may open
  int stdin_fd = -1;                     // -1: /dev/null
  int stdout_fd = -1;
  int stderr_fd = -1;
  int inherited_fd = -1;      // stays open in the program, under the same number; -1: none
  bool wait_for_exec = true;  // otherwise the child reports a failed exec on its stderr and ends with 127
};

// How a process ended.
struct ProcessEnd {
  int exit_code = 0;  // valid if signal is 0
  int signal = 0;
  std::int64_t time_ns = 0;  // CLOCK_REALTIME when the end was detected

  bool success() const { return exit_code == 0 && signal == 0; }
};

// A child that leads a process group of its own, with default signals, and that the kernel kills when the thread that
// started it ends. Movable; the destructor kills and reaps it if it still runs. Used by one thread.
class RankProcess {
 public:
  // Forks, and with wait_for_exec returns when the program runs or could not be executed (invalid_argument, with the
  // reason). Too many processes: resource_exhausted.
  static Result<RankProcess> start(const ProcessSpec& spec, const Guard& guard);
  RankProcess(RankProcess&& other) noexcept;
  RankProcess& operator=(RankProcess&& other) = delete;
  ~RankProcess();

  pid_t pid() const { return pid_; }
  std::int64_t started_ns() const { return started_ns_; }
  // For poll(2): readable once the process has ended.
  int pid_fd() const { return pid_fd_.get(); }
  bool reaped() const { return pid_ < 0; }

  // Signals the rank and the processes that it started, if they stayed in its group. Does nothing once it was reaped.
  void signal_group(int signal) const;
  // The process has ended (its pid_fd is readable): kills the processes that it left in its group. Its pid stays
  // reserved.
  void kill_remains() const;
  // Blocks until the process has ended; afterwards it is reaped.
  ProcessEnd reap();

 private:
  RankProcess(pid_t pid, UniqueFd pid_fd, const Guard& guard);
  pid_t pid_;
  UniqueFd pid_fd_;
  const Guard* guard_;
  std::int64_t started_ns_;
};

// CLOCK_REALTIME, in nanoseconds.
std::int64_t wall_clock_ns();

}  // namespace lockstep::launch
