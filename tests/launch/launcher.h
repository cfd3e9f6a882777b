// A running `lockstep run`, and what it has started.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "support/process_set.h"

namespace lockstep::testing {

// The path of the program that the tests' ranks run; its first argument selects what they do (rank.cpp).
std::string rank_program();

// The path of a script beside these tests.
std::string test_script(const std::string& name);

// The path of the command.
std::string lockstep_program();

class Launcher {
 public:
  // `arguments`: those after "run". `prefix`: a command that runs the launcher, such as nsenter(1).
  explicit Launcher(const std::vector<std::string>& arguments, const Environment& environment = {},
                    const std::vector<std::string>& prefix = {});
  // Kills all remaining processes.
  ~Launcher();
  Launcher(const Launcher&) = delete;
  Launcher& operator=(const Launcher&) = delete;

  pid_t pid() const { return process_.pid(0); }
  void kill(int signal) { process_.kill(0, signal); }
  // Waits for the end, 60 s; the exit code, or -signal if a signal ended the launcher itself.
  int wait();
  bool wait_for_line(const std::string& text, double seconds = 30);
  std::string out() const { return process_.output(0); }
  std::string err() const { return process_.error_output(0); }
  std::vector<std::string> out_lines() const;
  std::string report() const { return process_.report(); }

  // The running processes that it started, directly or indirectly; without itself.
  std::vector<pid_t> descendants() const;
  // True as soon as there is none; false after 10 s.
  bool nothing_left() const;
  // The launcher's folders that still exist.
  std::vector<std::string> folders_left() const;

 private:
  std::string folder_;  // TMPDIR of the launcher
  std::string mark_;    // in the environment of all processes that it started
  ProcessSet process_;
};

// A folder for one test, removed at its end.
class TestFolder {
 public:
  TestFolder();
  ~TestFolder();
  TestFolder(const TestFolder&) = delete;
  TestFolder& operator=(const TestFolder&) = delete;
  std::string path(const std::string& name = {}) const { return name.empty() ? path_ : path_ + "/" + name; }

 private:
  std::string path_;
};

std::string content_of(const std::string& path);

}  // namespace lockstep::testing
