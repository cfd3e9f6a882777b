// Groups of some of the ranks, and the two ways to count ranks, as in torch.distributed.
//
// A rank of the world is also called a global rank: get_rank() of the default group. A rank of a group counts only that
// group's members. Each call says which of the two it takes; new_group() is in init.h.
//
// A process gets an object for groups that it is not in, too: get_rank() and get_world_size() of it are -1, the calls
// of collectives.h on it do nothing but warn once, and making a DistributedDataParallel, an optimizer, a layer,
// snapshots or a hook on it throws Error.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lockstep/ddp/init.h"

namespace lockstep {

// The rank of the world that has `group_rank` in `group`; null: the default group, where both are the same. Throws
// Error if there is no such rank in the group. None of these three communicates, and non-members may call them.
int get_global_rank(const std::shared_ptr<ProcessGroup>& group, int group_rank);
// The rank in `group` of rank `global_rank` of the world. Throws Error if it is not in the group.
int get_group_rank(const std::shared_ptr<ProcessGroup>& group, int global_rank);
// The ranks of the world that are in `group`, in the order of their ranks there.
std::vector<int> get_process_group_ranks(const std::shared_ptr<ProcessGroup>& group = nullptr);

struct Subgroups {
  // The one that this process is in; an object for non-members if it is in none.
  std::shared_ptr<ProcessGroup> mine;
  // All of them, in the same order on every rank.
  std::vector<std::shared_ptr<ProcessGroup>> all;
};

// Divides `group` (null: the default group) into groups of `group_size` consecutive ranks each. With the number of
// ranks per host, this makes one group per host. All ranks of `group` call it. Throws Error if the size of `group` is
// not a multiple of `group_size`.
Subgroups new_subgroups(int group_size, const std::shared_ptr<ProcessGroup>& group = nullptr);
// One group for each list of ranks of the world; each is put in ascending order, as by new_group(). A rank may be in
// none of them. All ranks that are in one must call it, with the same lists. Throws Error, on every rank, if a rank is
// in two of them, or there is no such rank, or a list is empty.
Subgroups new_subgroups_by_enumeration(const std::vector<std::vector<int>>& ranks_per_subgroup);

// Splits `parent` (null: the default group): each list has ranks of `parent`, not of the world, and becomes a group
// whose ranks are in the list's order. Returns the one that this process is in; one for non-members if it is in none.
// All ranks that are in a list must call it, with the same lists. Throws Error as new_subgroups_by_enumeration() does,
// and if this process is not in `parent`.
std::shared_ptr<ProcessGroup> split_group(const std::vector<std::vector<int>>& split_ranks,
                                          const std::shared_ptr<ProcessGroup>& parent = nullptr,
                                          const std::string& name = "");

}  // namespace lockstep
