// `lockstep run`, from checked options to the exit code.
#pragma once

#include "launch/options/options.h"

namespace lockstep::launch {

inline constexpr int kUsageCode = 2;       // invalid options, program or files; nothing was started
inline constexpr int kRendezvousCode = 3;  // the nodes did not meet, or one was lost

// Runs the job and returns the exit code: 0; that of the rank that failed first (128 + signal); kUsageCode;
// kRendezvousCode; 128 + the signal that interrupted the launcher. Installs signal handlers while it runs, and must be
// called by the main thread before other threads are started: the ranks die with the thread that started them.
int run_job(const RunOptions& options, const Environment& environment);

}  // namespace lockstep::launch
