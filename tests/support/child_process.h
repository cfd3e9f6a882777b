// One child process with its output, for ProcessSet. Private to tests/support.
#pragma once

#include <sys/types.h>

#include <array>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/unique_fd.h"
#include "support/process_set.h"

namespace lockstep::testing {

struct ChildProcess {
  pid_t pid = -1;
  UniqueFd pid_fd;
  std::array<UniqueFd, 2> streams;   // read ends, non-blocking: stdout, stderr; closed at their end
  std::array<std::string, 2> text;   // what was read from them
  std::optional<ExitStatus> status;  // set after the last byte was read

  // False if it has ended. Never reaches another process that got the same pid.
  bool send_signal(int signal) const;
  // Reads what was written and, if the process has ended, its status. Never blocks.
  void update();
  // Blocks until the process has ended.
  ExitStatus reap() const;
};

struct ChildCommand {
  std::vector<std::string> arguments;  // the first is the program, found through PATH
  Environment environment;             // all of it
  std::vector<int> fds;                // to inherit, under their numbers
};

// Throws std::system_error.
ChildProcess spawn(const ChildCommand& command);

}  // namespace lockstep::testing
