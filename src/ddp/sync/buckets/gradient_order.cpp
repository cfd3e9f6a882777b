#include "ddp/sync/buckets/gradient_order.h"

#include <algorithm>

namespace lockstep::detail {

std::vector<std::size_t> reverse_order(std::size_t count) {
  std::vector<std::size_t> order(count);
  for (std::size_t i = 0; i < count; ++i) order[i] = count - 1 - i;
  return order;
}

ObservedOrder agree_on_order(ProcessGroup& group, int authority, std::size_t parameter_count,
                             const ObservedOrder& observed) {
  const auto count = static_cast<std::int64_t>(parameter_count);
  at::Tensor message = at::zeros({count + static_cast<std::int64_t>(observed.counts.size())}, at::kLong);
  std::int64_t* next = message.data_ptr<std::int64_t>();
  std::vector<char> placed(parameter_count, 0);
  const auto place = [&](std::size_t index) {
    if (!placed[index]) *next++ = static_cast<std::int64_t>(index);
    placed[index] = 1;
  };
  for (std::size_t index : observed.order) place(index);
  for (std::size_t index : reverse_order(parameter_count)) place(index);
  std::copy(observed.counts.begin(), observed.counts.end(), next);

  group.broadcast(message, authority, {}).wait();
  const std::int64_t* agreed = message.data_ptr<std::int64_t>();
  return {.order = {agreed, agreed + count}, .counts = {agreed + count, agreed + message.numel()}};
}

}  // namespace lockstep::detail
