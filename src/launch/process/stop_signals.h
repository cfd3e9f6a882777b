// SIGINT, SIGTERM and SIGHUP as something that a loop can wait for.
#pragma once

#include <csignal>
#include <vector>

#include "base/unique_fd.h"

namespace lockstep::launch {

// While one exists (there can only be one), these signals are counted instead of ending the process; SIGPIPE is
// ignored. What was ignored before (nohup) stays ignored. The destructor restores what was there.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  // For poll(2): readable once a signal has come.
  int fd() const { return event_.get(); }
  // Forgets that fd() was readable; not the signals.
  void clear_fd() const;

  // The first signal that came; 0: none.
  static int first();
  // A second one came, at least 0.2 s after the first: some programs (timeout(1)) send one signal twice.
  static bool impatient();
  // For functions that ask.
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
