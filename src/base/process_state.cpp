#include "base/process_state.h"

#include <fmt/format.h>
#include <signal.h>

#include <cerrno>
#include <cstdio>
#include <fstream>

namespace lockstep {

std::string process_state(std::int64_t pid) {
  constexpr const char* kEnded = "its process has ended";
  if (::kill(static_cast<pid_t>(pid), 0) != 0 && errno == ESRCH) return kEnded;
  std::ifstream stat(fmt::format("/proc/{}/stat", pid));
  std::string line;
  std::getline(stat, line);
  const auto name_end = line.rfind(") ");  // the name in parentheses may itself contain blanks
  if (name_end == std::string::npos) return kEnded;
  char state = '?';
  unsigned flags = 0;
  std::sscanf(line.c_str() + name_end + 2, "%c %*d %*d %*d %*d %*d %u", &state, &flags);
  // The kernel closes connections before the process becomes a zombie; this flag (PF_EXITING) is set by then.
  constexpr unsigned kExiting = 0x4;
  const bool ended = state == 'Z' || state == 'X' || (flags & kExiting) != 0;
  return ended ? kEnded : "its process still exists";
}

}  // namespace lockstep
