#include "ddp/optim/shared_memory.h"

#include <algorithm>

namespace lockstep::detail {

namespace {

struct Range {
  const std::byte* begin = nullptr;
  const std::byte* end = nullptr;
  std::size_t index = 0;
};

Range range_of(const at::Tensor& tensor, std::size_t index) {
  std::int64_t last = 0;
  for (std::int64_t i = 0; i < tensor.dim(); ++i) last += (tensor.size(i) - 1) * tensor.stride(i);
  const auto* const begin = static_cast<const std::byte*>(tensor.data_ptr());
  return {begin, begin + (last + 1) * static_cast<std::int64_t>(tensor.element_size()), index};
}

}  // namespace

std::optional<std::pair<std::size_t, std::size_t>> find_shared_memory(const std::vector<at::Tensor>& parameters) {
  std::vector<Range> ranges;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const at::Tensor& parameter = parameters[i];
    if (parameter.has_storage() && parameter.numel() > 0) ranges.push_back(range_of(parameter, i));
  }
  std::sort(ranges.begin(), ranges.end(), [](const Range& a, const Range& b) { return a.begin < b.begin; });
  for (std::size_t i = 1; i < ranges.size(); ++i) {
    if (ranges[i].begin >= ranges[i - 1].end) continue;
    return std::minmax(ranges[i - 1].index, ranges[i].index);
  }
  return std::nullopt;
}

}  // namespace lockstep::detail
