// What a process that crashes leaves behind for its launcher: why.
//
// `lockstep run` gives each rank a file name in LOCKSTEP_ERROR_FILE. Where that variable is set, a program that links
// the engine writes there, when it is about to die:
//
//   time_ns 1731720000000000000                  CLOCK_REALTIME
//   std::runtime_error: no such file             type and what() of an exception that nobody caught, or
//   SIGSEGV (Segmentation fault) at address 0x0  the signal
//   backtrace:
//   ./train(_ZN5Model7forwardEv+0x1c)[0x55...]   one line for each frame, innermost first
//
// and then dies as it would have. Under torchrun (only TORCHELASTIC_ERROR_FILE is set) the first lines are written in
// the form that torchrun reads, JSON without frames.
#pragma once

namespace lockstep {

// Installs handlers for SIGSEGV, SIGBUS, SIGFPE, SIGILL and SIGABRT (each only where nobody else has one) and for
// std::terminate, if the environment asks for a report; otherwise nothing. Runs by itself when the program is loaded;
// calling it makes sure that it is linked. Idempotent, thread-safe.
void install_crash_reporter();

}  // namespace lockstep
