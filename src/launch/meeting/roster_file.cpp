#include "launch/meeting/roster_file.h"

#include "launch/meeting/meeting_records.h"
#include "membership/roster.h"

namespace lockstep::launch {

std::optional<std::string> RosterFile::take_newer() {
  const auto number = membership::newest_number(path_);
  if (!number.ok() || *number <= newest_) return std::nullopt;
  const auto roster = membership::read_roster(path_);
  if (!roster.ok() || roster->generation.number <= newest_) return std::nullopt;
  newest_ = roster->generation.number;
  return membership::format(*roster);
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
