#include "lockstep/ddp/process_group.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "ddp/group/non_member_group.h"

namespace lockstep {

namespace {

void check_list(std::span<const int> ranks, int size) {
  const auto refuse = [&](const std::string& why) {
    throw Error({StatusCode::invalid_argument, fmt::format("new_group([{}]): {}", fmt::join(ranks, ", "), why)});
  };
  std::set<int> seen;
  for (const int rank : ranks) {
    if (rank < 0 || rank >= size) {
      refuse(fmt::format("there is no rank {}: the ranks are 0 to {}", rank, size - 1));
    }
    if (!seen.insert(rank).second) refuse(fmt::format("rank {} is in the list twice", rank));
  }
}

}  // namespace

std::shared_ptr<ProcessGroup> ProcessGroup::new_group(std::span<const int> ranks, const std::string& name) {
  require_member();
  check_list(ranks, size());
  std::vector<int> members;
  for (const int rank : ranks) members.push_back(global_rank(rank));
  const bool member = std::find(ranks.begin(), ranks.end(), rank()) != ranks.end();
  std::shared_ptr<ProcessGroup> group =
      member ? make_subgroup(ranks, name)
             : std::make_shared<detail::NonMemberGroup>(global_rank(rank()), name, backend());
  group->global_ranks_ = std::move(members);
  return group;
}

void ProcessGroup::require_member() const {
  if (rank() >= 0) return;
  throw Error({StatusCode::invalid_argument,
               fmt::format("{}, so it cannot communicate, train or save with it: do that only on its members, where "
                           "lockstep::get_rank(group) is not -1",
                           describe())});
}

std::vector<int> ProcessGroup::global_ranks() const {
  if (global_ranks_) return *global_ranks_;
  std::vector<int> all(static_cast<std::size_t>(size()));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

int ProcessGroup::global_rank(int group_rank) const {
  const int count = global_ranks_ ? static_cast<int>(global_ranks_->size()) : size();
  if (group_rank < 0 || group_rank >= count) return -1;
  return global_ranks_ ? (*global_ranks_)[static_cast<std::size_t>(group_rank)] : group_rank;
}

int ProcessGroup::group_rank(int global_rank) const {
  if (!global_ranks_) return global_rank >= 0 && global_rank < size() ? global_rank : -1;
  const auto found = std::find(global_ranks_->begin(), global_ranks_->end(), global_rank);
  return found == global_ranks_->end() ? -1 : static_cast<int>(found - global_ranks_->begin());
}

std::shared_ptr<ProcessGroup> ProcessGroup::companion(const std::string& purpose) {
  require_member();
  std::lock_guard lock(companions_mutex_);
  std::shared_ptr<ProcessGroup>& group = companions_[purpose];
  if (!group) {
    std::vector<int> ranks(static_cast<std::size_t>(size()));
    std::iota(ranks.begin(), ranks.end(), 0);
    group = new_group(ranks, purpose);
  }
  return group;
}

Work ProcessGroup::all_reduce(const at::Tensor& tensor, const ReduceOptions& options) {
  return submit({.kind = OperationKind::all_reduce,
                 .input = tensor,
                 .output = tensor,
                 .op = options.op,
                 .timeout = options.timeout});
}

Work ProcessGroup::reduce(const at::Tensor& tensor, int root, const ReduceOptions& options) {
  return submit({.kind = OperationKind::reduce,
                 .input = tensor,
                 .output = tensor,
                 .op = options.op,
                 .peer = root,
                 .timeout = options.timeout});
}

Work ProcessGroup::broadcast(const at::Tensor& tensor, int root, const CallOptions& options) {
  return submit(
      {.kind = OperationKind::broadcast, .input = tensor, .output = tensor, .peer = root, .timeout = options.timeout});
}

Work ProcessGroup::all_gather(const at::Tensor& input, const at::Tensor& output, const CallOptions& options) {
  return submit({.kind = OperationKind::all_gather, .input = input, .output = output, .timeout = options.timeout});
}

Work ProcessGroup::all_gather_v(const at::Tensor& input, const at::Tensor& output, std::span<const std::size_t> counts,
                                const CallOptions& options) {
  return submit({.kind = OperationKind::all_gather_v,
                 .input = input,
                 .output = output,
                 .counts = {counts.begin(), counts.end()},
                 .timeout = options.timeout});
}

Work ProcessGroup::reduce_scatter(const at::Tensor& input, const at::Tensor& output, const ReduceOptions& options) {
  return submit({.kind = OperationKind::reduce_scatter,
                 .input = input,
                 .output = output,
                 .op = options.op,
                 .timeout = options.timeout});
}

Work ProcessGroup::gather(const at::Tensor& input, const at::Tensor& output, int root, const CallOptions& options) {
  return submit(
      {.kind = OperationKind::gather, .input = input, .output = output, .peer = root, .timeout = options.timeout});
}

Work ProcessGroup::scatter(const at::Tensor& input, const at::Tensor& output, int root, const CallOptions& options) {
  return submit(
      {.kind = OperationKind::scatter, .input = input, .output = output, .peer = root, .timeout = options.timeout});
}

Work ProcessGroup::all_to_all(const at::Tensor& input, const at::Tensor& output, const CallOptions& options) {
  return submit({.kind = OperationKind::all_to_all, .input = input, .output = output, .timeout = options.timeout});
}

Work ProcessGroup::barrier(const CallOptions& options) {
  return submit({.kind = OperationKind::barrier, .timeout = options.timeout});
}

Work ProcessGroup::send(const at::Tensor& tensor, int destination, int tag, const CallOptions& options) {
  return submit(
      {.kind = OperationKind::send, .input = tensor, .peer = destination, .tag = tag, .timeout = options.timeout});
}

Work ProcessGroup::recv(const at::Tensor& tensor, int source, int tag, const CallOptions& options) {
  return submit(
      {.kind = OperationKind::recv, .output = tensor, .peer = source, .tag = tag, .timeout = options.timeout});
}

}  // namespace lockstep
