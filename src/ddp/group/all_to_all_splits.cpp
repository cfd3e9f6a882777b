// all_to_all_single with parts of different sizes: the ranks compare their splits, then each part is a message.
// Messages are sent on a companion group, so their tags cannot meet those of the program.
#include <fmt/format.h>

#include <numeric>
#include <optional>

#include "base/invalid_argument.h"
#include "collectives/split_table.h"
#include "ddp/group/non_member_group.h"
#include "lockstep/ddp/collectives.h"

namespace lockstep {

namespace {

constexpr const char* kName = "all_to_all_single";

void check_splits(const char* what, const std::vector<std::int64_t>& splits, const at::Tensor& tensor, int ranks) {
  if (splits.size() != static_cast<std::size_t>(ranks)) {
    throw_invalid_argument(
        kName, fmt::format("there are {} {} splits for the {} ranks of the group", splits.size(), what, ranks));
  }
  std::int64_t sum = 0;
  for (const std::int64_t split : splits) {
    if (split < 0) throw_invalid_argument(kName, fmt::format("an {} split is {}; 0 is the smallest", what, split));
    sum += split;
  }
  if (tensor.dim() == 0 || tensor.size(0) != sum) {
    throw_invalid_argument(kName, fmt::format("the {} splits add up to {}, but the {} has {} rows (dimension 0)", what,
                                              sum, what, tensor.dim() == 0 ? 0 : tensor.size(0)));
  }
}

void check_rows(const at::Tensor& output, const at::Tensor& input) {
  if (output.scalar_type() != input.scalar_type() || output.device() != input.device() ||
      output.sizes().slice(1) != input.sizes().slice(1)) {
    throw_invalid_argument(kName, "input and output must have the same type, device, and dimensions after the first");
  }
}

void compare_splits(const AllToAllSplits& splits, const std::shared_ptr<ProcessGroup>& group,
                    const TensorCallOptions& options) {
  const std::vector<std::int64_t> row = SplitTable::row(splits.input, splits.output);
  SplitTable table(group->size());
  const at::Tensor own = at::tensor(row, at::kLong);
  const at::Tensor all =
      at::from_blob(table.rows().data(), {static_cast<std::int64_t>(table.rows().size())}, at::kLong);
  all_gather_into_tensor(all, own, {.group = group, .timeout = options.timeout});
  throw_if_error(
      table.check("rows", [&group](int rank) { return fmt::format("global rank {}", group->global_rank(rank)); }));
}

// All, also after an error: their tensors are in use until they are complete.
void wait_for_all(const std::vector<Work>& works) {
  std::optional<Error> first;
  for (const Work& work : works) {
    try {
      work.wait();
    } catch (const Error& error) {
      if (!first) first = error;
    }
  }
  if (first) throw *first;
}

}  // namespace

void all_to_all_single(const at::Tensor& output, const at::Tensor& input, const AllToAllSplits& splits,
                       const TensorCallOptions& options) {
  if (const auto* other_ranks = dynamic_cast<const detail::NonMemberGroup*>(options.group.get())) {
    other_ranks->warn_once(kName);
    return;
  }
  const auto group = group_or_default(options.group);
  for (const at::Tensor* tensor : {&output, &input}) {
    if (!tensor->defined()) throw_invalid_argument(kName, "the tensor is undefined");
    throw_if_error(group->check(*tensor, std::nullopt).with_context(kName));
  }
  check_splits("output", splits.output, output, group->size());
  check_splits("input", splits.input, input, group->size());
  check_rows(output, input);
  compare_splits(splits, group, options);

  const auto messages = group->companion("all_to_all");
  const TensorCallOptions on{.group = messages, .timeout = options.timeout};
  std::vector<Work> works;
  std::int64_t to = 0, from = 0;
  for (int peer = 0; peer < group->size(); ++peer) {
    const auto index = static_cast<std::size_t>(peer);
    const at::Tensor expected = output.detach().narrow(0, to, splits.output[index]);
    const at::Tensor sent = input.detach().narrow(0, from, splits.input[index]);
    to += splits.output[index];
    from += splits.input[index];
    if (peer == group->rank()) {
      expected.copy_(sent);
      continue;
    }
    const int global = messages->global_rank(peer);
    if (expected.numel() > 0) works.push_back(recv_async(expected, global, 0, on));
    if (sent.numel() > 0) works.push_back(send_async(sent, global, 0, on));
  }
  wait_for_all(works);
}

}  // namespace lockstep
