// SIGINT, SIGTERM and SIGHUP as an event that a loop can wait for.
#pragma once

#include <csignal>
#include <vector>

#include "base/unique_fd.h"

namespace lockstep::launch {

// While one exists (there can only be one), these signals are counted instead of ending the process. SIGPIPE is
// ignored, and SIGXFSZ, so that a log file at the limit of its size is an error. Signals that were ignored before
// (nohup) stay ignored. The destructor restores the previous handlers.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  // For poll(2): readable once a signal has arrived.
  int fd() const { return event_.get(); }
  // Makes fd() unreadable again; the signals stay counted.
  void clear_fd() const;

  // The first signal that arrived; 0: none.
  static int first();
  // True if a second one arrived at least 0.2 s after the first: some programs (timeout(1)) send one signal twice.
  static bool impatient();
  // For functions that poll for a stop request.
  static bool requested() { return first() != 0; }

 private:
  struct Saved {
    int signal;
    struct sigaction action;
  };
  UniqueFd event_;
  std::vector<Saved> saved_;
};

}  // namespace lockstep::launch
