// The report that a crashing process leaves for its launcher.
//
// `lockstep run` gives each rank a file name in LOCKSTEP_ERROR_FILE. If that variable is set, a program that links
// the engine writes to this file when it is about to die:
//
//   time_ns 1731720000000000000                  CLOCK_REALTIME
//   std::runtime_error: no such file             type and what() of an uncaught exception, or
//   SIGSEGV (Segmentation fault) at address 0x0  the signal
//   backtrace:
//   ./train(_ZN5Model7forwardEv+0x1c)[0x55...]   one line for each frame, innermost first
//
// and then dies as it would have without the report. Under torchrun (only TORCHELASTIC_ERROR_FILE is set) the first
// lines are written in the form that torchrun reads, JSON without frames.
#pragma once

namespace lockstep {

// Installs handlers for SIGSEGV, SIGBUS, SIGFPE, SIGILL and SIGABRT (each only if none is installed yet) and for
// std::terminate, if the environment asks for a report; otherwise does nothing. Runs by itself when the program is
// loaded; a call ensures that it is linked. Idempotent, thread-safe.
void install_crash_reporter();

}  // namespace lockstep
