#include "base/failpoint.h"

#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>

namespace lockstep {

void failpoint(const char* name) {
  // Read once: a program may change its environment in another thread.
  static const char* const folder = std::getenv("LOCKSTEP_FAILPOINTS");
  if (folder == nullptr) return;
  const std::string place = std::string(folder) + "/" + name;
  // Of several processes at the same place, only one can remove the file.
  if (::unlink((place + ".kill").c_str()) == 0) ::kill(::getpid(), SIGKILL);
  if (::unlink((place + ".stop").c_str()) == 0) ::kill(::getpid(), SIGSTOP);
  if (::unlink((place + ".delay").c_str()) == 0) std::this_thread::sleep_for(std::chrono::milliseconds(500));
}

}  // namespace lockstep
