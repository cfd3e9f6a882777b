// Child processes of the benchmark, and the signals that end it.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "bench/worker/channel.h"

namespace lockstep::bench {

// While it exists, SIGINT, SIGTERM and SIGHUP do not end the process at once: check_interrupted()
// throws instead, so that everything that was created is removed. At most one may exist at a time.
class InterruptGuard {
 public:
  InterruptGuard();
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;

  // The signal that was received, or 0.
  static int signal();
};
// Throws BenchError once a signal was received.
void check_interrupted();

// A running program in a process group of its own; its output goes to a file. The destructor sends SIGTERM
// to the group, and SIGKILL if the program has not ended within two seconds. The program also gets SIGTERM if
// this process dies.
class ChildProcess {
 public:
  // Throws BenchError. `environment` is added to that of this process ("NAME=value").
  ChildProcess(const std::vector<std::string>& command, const std::vector<std::string>& environment,
               const std::string& output_file);
  ~ChildProcess();
  ChildProcess(ChildProcess&& other) noexcept;
  ChildProcess& operator=(ChildProcess&&) = delete;

  // Never blocks.
  bool ended();
  // Blocks at most this long; returns whether the program has ended.
  bool wait_for_end(int milliseconds);
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_;
  bool reaped_ = false;
};

struct CommandResult {
  int exit_code = -1;
  std::string output;  // stdout and stderr
};
// Runs a program and waits for its end.
CommandResult run_command(const std::vector<std::string>& command);
// The same; returns the output. Throws BenchError, with the command and its output, if the exit code is not 0.
std::string run_or_throw(const std::vector<std::string>& command);

// The path of an executable of this name in PATH, or empty.
std::string find_program(const std::string& name);

// A new folder below TMPDIR; the destructor removes it and its content.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace lockstep::bench
