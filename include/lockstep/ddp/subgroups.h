// Subgroups, and the translation between global ranks and ranks of a group, as in torch.distributed.
//
// A global rank is a rank's number in the world: get_rank() of the default group. A rank of a group counts only that
// group's members. Each comment states which of the two a call takes; new_group() is in init.h.
//
// A process also gets an object for a group that it is not in: its get_rank() and get_world_size() are -1, the calls of
// collectives.h on it do nothing but log a warning once, and creating a DistributedDataParallel, an optimizer, a layer,
// snapshots or a hook on it throws Error.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lockstep/ddp/init.h"

namespace lockstep {

// The global rank of rank `group_rank` of `group`; null: the default group, in which both are the same. Throws
// Error if there is no such rank in the group. None of these three communicates, and non-members may call them.
int get_global_rank(const std::shared_ptr<ProcessGroup>& group, int group_rank);
// The rank in `group` of the global rank `global_rank`. Throws Error if it is not in the group.
int get_group_rank(const std::shared_ptr<ProcessGroup>& group, int global_rank);
// The global ranks of the members of `group`, in the order of their ranks there.
std::vector<int> get_process_group_ranks(const std::shared_ptr<ProcessGroup>& group = nullptr);

struct Subgroups {
  // The subgroup that this process is in; an object for non-members if it is in none.
  std::shared_ptr<ProcessGroup> mine;
  // All of them, in the same order on every rank.
  std::vector<std::shared_ptr<ProcessGroup>> all;
};

// Divides `group` (null: the default group) into subgroups of `group_size` consecutive ranks each. With the number of
// ranks per host, this creates one group per host. All ranks of `group` must call it. Throws Error if the size of
// `group` is not a multiple of `group_size`.
Subgroups new_subgroups(int group_size, const std::shared_ptr<ProcessGroup>& group = nullptr);
// One group for each list of global ranks; each list is put in ascending order, as by new_group(). A rank may be in
// none of them. All ranks that are in one must call it, with the same lists. Throws Error, on every rank, if a rank is
// in two of them or does not exist, or if a list is empty.
Subgroups new_subgroups_by_enumeration(const std::vector<std::vector<int>>& ranks_per_subgroup);

// Splits `parent` (null: the default group): each list has ranks of `parent`, not global ranks, and becomes a group
// whose ranks are in the order of the list. Returns the group that this process is in, or an object for non-members.
// All ranks that are in a list must call it, with the same lists. Throws Error as new_subgroups_by_enumeration() does,
// and if this process is not in `parent`.
std::shared_ptr<ProcessGroup> split_group(const std::vector<std::vector<int>>& split_ranks,
                                          const std::shared_ptr<ProcessGroup>& parent = nullptr,
                                          const std::string& name = "");

}  // namespace lockstep
