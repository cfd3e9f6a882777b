#include "ddp/group/non_member_group.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/log.h"

namespace lockstep::detail {

std::string NonMemberGroup::describe() const {
  const std::vector<int> members = global_ranks();
  if (members.empty()) return fmt::format("rank {} is in none of the groups that were made", global_rank_);
  return fmt::format("rank {} is not in the group{} of the ranks {}", global_rank_,
                     name_.empty() ? "" : fmt::format(" '{}'", name_), fmt::join(members, ", "));
}

void NonMemberGroup::warn_once(const std::string& operation) const {
  {
    const std::lock_guard lock(mutex_);
    if (!warned_.insert(operation).second) return;
  }
  log_warn("{} on rank {} does nothing: {}", operation, global_rank_, describe());
}

void NonMemberGroup::abort(const std::string&) { warn_once("abort"); }

void NonMemberGroup::refuse() const {
  require_member();
  throw Error({StatusCode::internal, describe()});  // not reached: rank() is -1
}

}  // namespace lockstep::detail
