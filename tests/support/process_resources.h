// The resources that this process holds, for tests that nothing is left behind.
#pragma once

#include <string>

#include "lockstep/base/deadline.h"

namespace lockstep::testing {

struct ProcessResources {
  int fds = 0;
  int threads = 0;
  int shared_mappings = 0;  // of memfds and other deleted files

  // From /proc/self.
  static ProcessResources now();
  // Waits until they equal `expected`, or until the deadline, and returns them. A thread that was
  // joined stays visible for a moment.
  static ProcessResources settle(const ProcessResources& expected, Deadline deadline);
  friend bool operator==(const ProcessResources&, const ProcessResources&) = default;
};

// For messages; lists the open fds and the threads.
std::string describe(const ProcessResources& resources);

}  // namespace lockstep::testing
