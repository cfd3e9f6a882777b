#include "lockstep/ddp/subgroups.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "ddp/group/non_member_group.h"

namespace lockstep {

namespace {

using Lists = std::vector<std::vector<int>>;

[[noreturn]] void refuse_call(const char* call, const std::string& why) {
  throw Error({StatusCode::invalid_argument, fmt::format("{}: {}", call, why)});
}

// Both the groups of members and those of non-members have them.
std::shared_ptr<ProcessGroup> any_group(const std::shared_ptr<ProcessGroup>& group) {
  return group ? group : group_or_default();
}

std::string list_text(const std::vector<int>& ranks) { return fmt::format("[{}]", fmt::join(ranks, ", ")); }

// What new_group() checks of one list, of all of them before the first group is made: otherwise members of the first
// would wait for ranks that have thrown.
void check_lists(const char* call, const Lists& lists, int size) {
  if (lists.empty()) refuse_call(call, "there is no list of ranks");
  std::map<int, std::vector<int>> seen;
  for (const std::vector<int>& list : lists) {
    if (list.empty()) refuse_call(call, "a list of ranks is empty");
    for (const int rank : list) {
      if (rank < 0 || rank >= size) {
        refuse_call(call,
                    fmt::format("there is no rank {} (in {}): the ranks are 0 to {}", rank, list_text(list), size - 1));
      }
      if (const auto [other, is_new] = seen.emplace(rank, list); !is_new) {
        refuse_call(call, other->second == list ? fmt::format("rank {} is in {} twice", rank, list_text(list))
                                                : fmt::format("rank {} is both in {} and in {}", rank,
                                                              list_text(other->second), list_text(list)));
      }
    }
  }
}

// Lists of ranks of `parent`.
Subgroups make_subgroups(ProcessGroup& parent, const Lists& lists, const std::string& name) {
  Subgroups result;
  for (const std::vector<int>& list : lists) {
    result.all.push_back(parent.new_group(list, name));
    if (result.all.back()->rank() >= 0) result.mine = result.all.back();
  }
  if (!result.mine) result.mine = parent.new_group({}, name);
  return result;
}

}  // namespace

int get_global_rank(const std::shared_ptr<ProcessGroup>& group, int group_rank) {
  const std::shared_ptr<ProcessGroup> found = any_group(group);
  const int global_rank = found->global_rank(group_rank);
  if (global_rank < 0) {
    refuse_call("get_global_rank", fmt::format("there is no rank {} in the group of the global ranks {}", group_rank,
                                               list_text(found->global_ranks())));
  }
  return global_rank;
}

int get_group_rank(const std::shared_ptr<ProcessGroup>& group, int global_rank) {
  const std::shared_ptr<ProcessGroup> found = any_group(group);
  const int group_rank = found->group_rank(global_rank);
  if (group_rank < 0) {
    refuse_call("get_group_rank", fmt::format("global rank {} is not in the group, which has the global ranks {}",
                                              global_rank, list_text(found->global_ranks())));
  }
  return group_rank;
}

std::vector<int> get_process_group_ranks(const std::shared_ptr<ProcessGroup>& group) {
  return any_group(group)->global_ranks();
}

Subgroups new_subgroups(int group_size, const std::shared_ptr<ProcessGroup>& group) {
  const std::shared_ptr<ProcessGroup> parent = group_or_default(group);
  if (group_size < 1) refuse_call("new_subgroups", fmt::format("group_size is {}, but must be at least 1", group_size));
  if (parent->size() % group_size != 0) {
    refuse_call("new_subgroups",
                fmt::format("{} ranks cannot be divided into groups of {}", parent->size(), group_size));
  }
  Lists lists;
  for (int rank = 0; rank < parent->size(); ++rank) {
    if (rank % group_size == 0) lists.emplace_back();
    lists.back().push_back(rank);
  }
  return make_subgroups(*parent, lists, "");
}

Subgroups new_subgroups_by_enumeration(const Lists& ranks_per_subgroup) {
  const std::shared_ptr<ProcessGroup> world = group_or_default();
  check_lists("new_subgroups_by_enumeration", ranks_per_subgroup, world->size());
  Lists sorted = ranks_per_subgroup;
  for (std::vector<int>& list : sorted) std::sort(list.begin(), list.end());
  return make_subgroups(*world, sorted, "");
}

std::shared_ptr<ProcessGroup> split_group(const Lists& split_ranks, const std::shared_ptr<ProcessGroup>& parent,
                                          const std::string& name) {
  const std::shared_ptr<ProcessGroup> group = group_or_default(parent);
  check_lists("split_group", split_ranks, group->size());
  return make_subgroups(*group, split_ranks, name).mine;
}

}  // namespace lockstep
