#include "launch/meeting/roster_file.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdio>
#include <fstream>
#include <sstream>

#include "base/net/socket.h"
#include "launch/meeting/meeting_records.h"

namespace lockstep::launch {

std::optional<std::string> RosterFile::take_newer() {
  struct stat info {};
  if (::stat(path_.c_str(), &info) != 0) return std::nullopt;
  const Seen now{.inode = info.st_ino, .time_ns = info.st_mtim.tv_sec * 1'000'000'000 + info.st_mtim.tv_nsec};
  if (now == seen_) return std::nullopt;
  seen_ = now;
  std::ifstream file(path_, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  const std::int64_t number = roster_number(text.str());
  if (number <= newest_) return std::nullopt;
  newest_ = number;
  return text.str();
}

Status RosterFile::offer(const std::string& roster) {
  const std::int64_t number = roster_number(roster);
  if (number <= newest_) return {};
  const std::string temporary = path_ + ".launcher";
  std::ofstream file(temporary, std::ios::binary | std::ios::trunc);
  file << roster;
  file.close();
  if (!file || std::rename(temporary.c_str(), path_.c_str()) != 0) {
    return Status(StatusCode::unavailable,
                  fmt::format("the roster cannot be written to '{}': {}", path_, errno_text(errno)));
  }
  newest_ = number;
  return {};
}

}  // namespace lockstep::launch
