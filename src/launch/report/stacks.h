// The stacks of all threads of a running process, taken from outside.
//
// A debugger (eu-stack of elfutils, else gdb) stops the process while it reads the stacks: a fraction of a second for a
// program without LibTorch, one or two with it. Lockstep limits that time, ends the debugger when it is over, and then
// makes sure that the process runs again. The process is never killed, and one that is stopped already, by a signal or
// another debugger, is left alone.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::launch {

struct StackOptions {
  std::chrono::milliseconds limit{5'000};     // for which the process may be stopped
  const std::atomic<bool>* cancel = nullptr;  // true: end early
};

// One line for each thread, from /proc, which disturbs nothing: "thread 4715 (train): sleeping in futex_wait_queue".
std::string describe_threads(std::int64_t pid);

// What the debugger printed, or why there is nothing: "no stacks: ...". Waits for options.limit at most.
std::string take_stacks(std::int64_t pid, const StackOptions& options = {});

// The debugger's command line for `pid`; empty if neither is installed. `path`: the value of PATH.
std::vector<std::string> stack_command(std::int64_t pid, const std::string& path);

// Why ptrace(2) is refused on this machine, and what to do; `scope`: kernel.yama.ptrace_scope. Pure.
std::string ptrace_advice(int scope);

}  // namespace lockstep::launch
