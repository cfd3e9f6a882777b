// Child processes of the benchmark, and the signals that end it.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "bench/worker/channel.h"

namespace lockstep::bench {

// While it lives, SIGINT, SIGTERM and SIGHUP do not end the process at once: check_interrupted
// throws instead, so that everything that was made is removed on the way out. One at a time.
class InterruptGuard {
 public:
  InterruptGuard();
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;

  // The signal that came, or 0.
  static int signal();
};
// Throws BenchError once a signal came.
void check_interrupted();

// A running program in a process group of its own; its output goes to a file. At the end it and
// its group are asked to end (SIGTERM), and killed if they do not within two seconds. Ends with
// this process too, even if that is killed.
class ChildProcess {
 public:
  // Throws BenchError. `environment` adds to this process's own ("NAME=value").
  ChildProcess(const std::vector<std::string>& command, const std::vector<std::string>& environment,
               const std::string& output_file);
  ~ChildProcess();
  ChildProcess(ChildProcess&& other) noexcept;
  ChildProcess& operator=(ChildProcess&&) = delete;

  // Never blocks.
  bool ended();
  // Blocks at most that long; whether it ended.
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
// Runs a program to its end.
CommandResult run_command(const std::vector<std::string>& command);
// The same, but a failure is a BenchError that shows the command and what it said.
std::string run_or_throw(const std::vector<std::string>& command);

// The path of an executable of this name in PATH, or empty.
std::string find_program(const std::string& name);

// A folder of our own below TMPDIR; removed with what is in it.
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
