#include "launch/meeting/roster_file.h"

#include <sys/stat.h>

#include "base/small_file.h"
#include "launch/meeting/meeting_records.h"
#include "membership/roster.h"

namespace lockstep::launch {

std::optional<std::string> RosterFile::take_newer() {
  struct stat info {};
  if (::stat(path_.c_str(), &info) != 0) return std::nullopt;
  const Seen now{.inode = info.st_ino, .time_ns = info.st_mtim.tv_sec * 1'000'000'000 + info.st_mtim.tv_nsec};
  if (now == seen_) return std::nullopt;
  seen_ = now;
  const auto text = read_small_file(path_);
  if (!text.ok() || !*text) return std::nullopt;
  const std::int64_t number = roster_number(**text);
  if (number <= newest_) return std::nullopt;
  newest_ = number;
  return **text;
}

Status RosterFile::offer(const std::string& roster) {
  const std::int64_t number = roster_number(roster);
  if (number <= newest_) return {};
  const auto parsed = membership::parse_roster(roster);
  if (!parsed.ok()) return parsed.status();
  LOCKSTEP_RETURN_IF_ERROR(membership::offer_roster(path_, *parsed).status());
  newest_ = number;
  return {};
}

}  // namespace lockstep::launch
