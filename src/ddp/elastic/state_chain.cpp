#include "ddp/elastic/state_chain.h"

#include <fmt/format.h>

#include <algorithm>

#include "lockstep/base/status.h"

namespace lockstep::detail {
namespace {

constexpr std::int64_t kSegmentBytes = 4 << 20;  // what a rank holds before it passes it on
constexpr std::int64_t kSmallBytes = 256 << 10;  // smaller tensors are packed: each message has its latency
constexpr int kTag = 0;                          // the training function, which may use any tag, is not running yet

// All bytes of a contiguous tensor. It shares the tensor's memory and keeps it alive.
at::Tensor bytes_of(const at::Tensor& tensor) { return tensor.detach().reshape({-1}).view(at::kByte); }

}  // namespace

std::vector<StateSegment> plan_segments(std::span<const std::int64_t> bytes) {
  std::vector<StateSegment> segments;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if (bytes[i] >= kSmallBytes) {
      for (std::int64_t begin = 0; begin < bytes[i]; begin += kSegmentBytes) {
        segments.push_back({i, i + 1, begin, std::min(begin + kSegmentBytes, bytes[i]), false});
      }
      continue;
    }
    const bool continues = !segments.empty() && segments.back().packed && segments.back().last == i &&
                           segments.back().end + bytes[i] <= kSegmentBytes;
    if (!continues) segments.push_back({i, i, 0, 0, true});
    segments.back().last = i + 1;
    segments.back().end += bytes[i];
  }
  std::erase_if(segments, [](const StateSegment& segment) { return segment.begin == segment.end; });
  return segments;
}

StateChain::StateChain(ProcessGroup& group, const std::vector<int>& ranks) : group_(group) {
  const auto own = std::find(ranks.begin(), ranks.end(), group.rank());
  if (own != ranks.begin()) from_ = *std::prev(own);
  if (std::next(own) != ranks.end()) to_ = *std::next(own);
}

Bytes StateChain::pass(Bytes message, std::size_t limit) {
  const at::Tensor size = at::full({1}, static_cast<std::int64_t>(message.size()), at::kLong);
  if (from_ >= 0) group_.recv(size, from_, kTag, {}).wait();
  const auto count = size.item<std::int64_t>();
  if (count < 0 || count > static_cast<std::int64_t>(limit)) {
    throw Error({StatusCode::protocol_error,
                 fmt::format("rank {} announced a state whose description has {} bytes; at most {} are accepted", from_,
                             count, limit)});
  }
  message.resize(static_cast<std::size_t>(count));
  const at::Tensor content = at::empty({count}, at::kByte);
  if (count > 0) std::copy(message.begin(), message.end(), static_cast<std::byte*>(content.data_ptr()));
  if (from_ >= 0 && count > 0) group_.recv(content, from_, kTag, {}).wait();
  if (to_ >= 0) {
    Work sent_size = group_.send(size, to_, kTag, {});
    if (count > 0) group_.send(content, to_, kTag, {}).wait();
    sent_size.wait();
  }
  const auto* const data = static_cast<const std::byte*>(content.data_ptr());
  message.assign(data, data + count);
  return message;
}

void StateChain::pass(const std::vector<at::Tensor>& tensors) {
  at::NoGradGuard no_grad;
  std::vector<std::int64_t> sizes;
  for (const at::Tensor& tensor : tensors) sizes.push_back(static_cast<std::int64_t>(tensor.nbytes()));
  const std::vector<StateSegment> segments = plan_segments(sizes);
  std::vector<at::Tensor> buffers;
  for (const StateSegment& segment : segments) {
    buffers.push_back(segment.packed ? at::empty({segment.end}, at::kByte)
                                     : bytes_of(tensors[segment.first]).slice(0, segment.begin, segment.end));
  }
  const auto each_packed = [&](std::size_t i, const auto& function) {
    if (!segments[i].packed) return;
    std::int64_t offset = 0;
    for (std::size_t tensor = segments[i].first; tensor < segments[i].last; offset += sizes[tensor++]) {
      if (sizes[tensor] > 0) function(buffers[i].slice(0, offset, offset + sizes[tensor]), bytes_of(tensors[tensor]));
    }
  };
  // All are posted at once: what arrives goes straight to its place.
  std::vector<Work> received, sent;
  for (std::size_t i = 0; from_ >= 0 && i < segments.size(); ++i) {
    received.push_back(group_.recv(buffers[i], from_, kTag, {}));
  }
  for (std::size_t i = 0; i < segments.size(); ++i) {
    if (from_ >= 0) {
      received[i].wait();
    } else {
      each_packed(i, [](at::Tensor packed, const at::Tensor& tensor) { packed.copy_(tensor); });
    }
    if (to_ >= 0) sent.push_back(group_.send(buffers[i], to_, kTag, {}));
    if (from_ >= 0) each_packed(i, [](const at::Tensor& packed, at::Tensor tensor) { tensor.copy_(packed); });
  }
  for (const Work& work : sent) work.wait();
}

}  // namespace lockstep::detail
