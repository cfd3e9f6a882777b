// The program that the ranks run; found before anything is started.
#pragma once

#include <string>
#include <vector>

#include "launch/options/options.h"
#include "lockstep/base/status.h"

namespace lockstep::launch {

struct Command {
  std::string path;                    // of the file that is executed
  std::vector<std::string> arguments;  // argv; the first is the program as the user wrote it
  bool is_python = false;              // a script, a module, or an interpreter given as the program
};

// Finds the program as a shell does (in PATH unless it has a /) and checks that it can run. A *.py file and a module
// are started with Python. Missing, a directory, no permission: invalid_argument with a one-line message.
Result<Command> find_command(const RunOptions& options, const Environment& environment);

}  // namespace lockstep::launch
