// Lengths first, then the bytes as tensors of that length.
#include "lockstep/ddp/objects.h"

#include <cstring>

namespace lockstep {

namespace {

at::Tensor bytes_of(std::string_view value) {
  at::Tensor bytes = at::empty({static_cast<std::int64_t>(value.size())}, at::kByte);
  if (!value.empty()) std::memcpy(bytes.data_ptr(), value.data(), value.size());
  return bytes;
}

std::string string_of(const at::Tensor& bytes) {
  if (bytes.numel() == 0) return {};
  return {static_cast<const char*>(bytes.data_ptr()), static_cast<std::size_t>(bytes.numel())};
}

at::Tensor length_of(std::string_view value) {
  return at::full({1}, static_cast<std::int64_t>(value.size()), at::kLong);
}

bool is_member(const TensorCallOptions& options) { return get_rank(options.group) >= 0; }

std::vector<at::Tensor> gather_bytes(std::string_view value, const TensorCallOptions& options) {
  const int size = get_world_size(options.group);
  const at::Tensor lengths = at::empty({size}, at::kLong);
  all_gather_into_tensor(lengths, length_of(value), options);
  std::vector<at::Tensor> all;
  for (int rank = 0; rank < size; ++rank) all.push_back(at::empty({lengths[rank].item<std::int64_t>()}, at::kByte));
  all_gather(all, bytes_of(value), options);
  return all;
}

}  // namespace

std::vector<std::string> all_gather_object(std::string_view value, const TensorCallOptions& options) {
  if (!is_member(options)) {
    all_gather({}, {}, options);  // warns
    return {};
  }
  std::vector<std::string> values;
  for (const at::Tensor& bytes : gather_bytes(value, options)) values.push_back(string_of(bytes));
  return values;
}

std::vector<std::string> gather_object(std::string_view value, int dst, const TensorCallOptions& options) {
  if (!is_member(options)) {
    gather({}, {}, dst, options);  // warns
    return {};
  }
  const auto group = group_or_default(options.group);
  const int size = group->size();
  const bool root = group->rank() == group->group_rank(dst);
  const at::Tensor lengths = at::empty({size}, at::kLong);
  all_gather_into_tensor(lengths, length_of(value), options);
  // All parts have the length of the longest: gather takes equal ones.
  const std::int64_t longest = lengths.max().item<std::int64_t>();
  at::Tensor padded = at::zeros({longest}, at::kByte);
  if (!value.empty()) std::memcpy(padded.data_ptr(), value.data(), value.size());
  const at::Tensor all = root ? at::empty({size, longest}, at::kByte) : at::Tensor();
  gather(padded, root ? all.unbind(0) : std::vector<at::Tensor>{}, dst, options);
  std::vector<std::string> values;
  for (int rank = 0; root && rank < size; ++rank) {
    values.push_back(string_of(all[rank].narrow(0, 0, lengths[rank].item<std::int64_t>())));
  }
  return values;
}

std::string broadcast_object(std::string_view value, int src, const TensorCallOptions& options) {
  if (!is_member(options)) {
    broadcast({}, src, options);  // warns
    return {};
  }
  const auto group = group_or_default(options.group);
  const bool root = group->rank() == group->group_rank(src);
  const at::Tensor length = root ? length_of(value) : at::empty({1}, at::kLong);
  broadcast(length, src, options);
  const at::Tensor bytes = root ? bytes_of(value) : at::empty({length.item<std::int64_t>()}, at::kByte);
  broadcast(bytes, src, options);
  return string_of(bytes);
}

}  // namespace lockstep
