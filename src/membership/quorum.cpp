#include "membership/quorum.h"

#include <fmt/format.h>

namespace lockstep::membership {

Quorum count_quorum(std::span<const std::string> members, const std::set<std::string>& ended,
                    const std::set<std::string>& present, TieBreaker tie_breaker) {
  Quorum quorum;
  bool first_is_here = false;
  for (const std::string& member : members) {
    const bool is_here = present.contains(member);
    // A member that is present has not ended, even if it was considered ended.
    if (!is_here && ended.contains(member)) continue;
    if (quorum.living == 0) first_is_here = is_here;
    ++quorum.living;
    if (is_here) ++quorum.present;
  }
  const bool is_tie = quorum.living > 0 && 2 * quorum.present == quorum.living;
  quorum.needs_vote = is_tie && tie_breaker == TieBreaker::witness;
  quorum.reached = 2 * quorum.present > quorum.living || quorum.needs_vote ||
                   (is_tie && tie_breaker == TieBreaker::first_member && first_is_here);
  const char* missing = "; more than half are needed";
  if (is_tie && tie_breaker == TieBreaker::first_member) {
    missing = ", but not the first of them: half is not enough without it";
  } else if (is_tie) {
    missing = ", but their witness cannot be reached: half is not enough without it";
  }
  quorum.reason = fmt::format("{} of the {} that may still be alive are present{}", quorum.present, quorum.living,
                              quorum.reached ? "" : missing);
  return quorum;
}

}  // namespace lockstep::membership
