#include "transport/stream/stream_flow.h"

#include <algorithm>
#include <limits>

namespace lockstep {

void MemoryQueue::clear() {
  ranges_.clear();
  head_ = 0;
  end_ = 0;
}

void MemoryQueue::push(std::byte* data, std::size_t size) {
  if (size == 0) return;
  if (head_ < ranges_.size() && ranges_.back().data + ranges_.back().size == data) {
    ranges_.back().size += size;
  } else {
    ranges_.push_back({data, end_, size});
  }
  end_ += size;
}

void MemoryQueue::retire(std::size_t position) {
  while (head_ < ranges_.size() && ranges_[head_].begin + ranges_[head_].size <= position) ++head_;
  if (head_ == ranges_.size()) {
    ranges_.clear();
    head_ = 0;
  }
}

std::span<std::byte> MemoryQueue::at(std::size_t position) const {
  for (std::size_t i = head_; i < ranges_.size(); ++i) {
    const Range& range = ranges_[i];
    if (position >= range.begin && position < range.begin + range.size) {
      return std::span(range.data, range.size).subspan(position - range.begin);
    }
  }
  return {};
}

void StreamFlow::connect(std::span<Channel> channels) {
  // With one connection there is nothing to stripe.
  if (channels.size() == 1) stripe_bytes_ = std::numeric_limits<std::size_t>::max();
  connections_.resize(channels.size());
  for (std::size_t i = 0; i < channels.size(); ++i) connections_[i].channel = &channels[i];
  reset_connections();
}

void StreamFlow::open() {
  open_ = true;
  completed_ = 0;
  memory_.clear();
  reset_connections();
}

void StreamFlow::reset_connections() {
  for (std::size_t i = 0; i < connections_.size(); ++i) {
    connections_[i].position = i == 0 ? 0 : i * stripe_bytes_;
    connections_[i].header_done = 0;
    connections_[i].blocked = false;
  }
}

bool StreamFlow::idle() const {
  return !open_ ||
         (connected() && completed_ == memory_.end() && connections_.front().header_done == kStreamHeaderBytes);
}

bool StreamFlow::wants(std::size_t connection) const {
  if (!open_) return false;
  return connections_[connection].position < memory_.end() ||
         (connection == 0 && connections_[connection].header_done < kStreamHeaderBytes);
}

// The position of a connection after `bytes` more: inside its stripe, or at the start of its next one.
std::size_t StreamFlow::position_after(std::size_t position, std::size_t bytes) const {
  const std::size_t left_in_stripe = stripe_bytes_ - position % stripe_bytes_;
  if (bytes < left_in_stripe) return position + bytes;
  return position + bytes + (connections_.size() - 1) * stripe_bytes_;
}

std::size_t StreamFlow::gather(const StreamConnection& connection, std::size_t limit, std::span<iovec> ranges,
                               std::size_t& used) const {
  std::size_t total = 0;
  std::size_t position = connection.position;
  while (total < limit && used < ranges.size() && position < memory_.end()) {
    const auto memory = memory_.at(position);
    const std::size_t size = std::min({memory.size(), stripe_bytes_ - position % stripe_bytes_, limit - total});
    ranges[used++] = {memory.data(), size};
    total += size;
    position = position_after(position, size);
  }
  return total;
}

void StreamFlow::account(StreamConnection& connection, std::size_t bytes) {
  const std::size_t of_header = std::min(bytes, kStreamHeaderBytes - connection.header_done);
  connection.header_done += of_header;
  bytes -= of_header;
  while (bytes > 0) {
    const std::size_t size = std::min(bytes, stripe_bytes_ - connection.position % stripe_bytes_);
    connection.position = position_after(connection.position, size);
    bytes -= size;
  }
  std::size_t first_missing = memory_.end();
  for (const StreamConnection& each : connections_) first_missing = std::min(first_missing, each.position);
  completed_ = first_missing;
  memory_.retire(completed_);
}

StreamFlow::Moved StreamFlow::move(std::size_t index, const StreamHeaderBytes& header, std::size_t limit) {
  StreamConnection& connection = connections_[index];
  std::array<iovec, kMaxRanges> ranges;
  std::size_t used = 0;
  const std::size_t header_left = kStreamHeaderBytes - connection.header_done;
  if (header_left > 0) {
    // Sending only reads through its iovecs, although their type is not const.
    std::byte* bytes =
        direction_ == StreamDirection::send ? const_cast<std::byte*>(header.data()) : connection.header.data();
    ranges[used++] = {bytes + connection.header_done, header_left};
  }
  const std::size_t asked = header_left + gather(connection, limit, ranges, used);

  const auto memory = std::span<const iovec>(ranges).first(used);
  const IoResult result =
      direction_ == StreamDirection::send ? connection.channel->send(memory) : connection.channel->receive(memory);
  if (result.would_block) {
    connection.blocked = true;
    return {};
  }
  if (result.error != 0) return {.outcome = Outcome::failed, .error = result.error};
  if (result.closed) return {.outcome = Outcome::closed};
  const std::size_t bytes = result.bytes;
  connection.blocked = bytes < asked;
  account(connection, bytes);
  return {.outcome = Outcome::moved,
          .header_arrived = header_left > 0 && bytes >= header_left && direction_ == StreamDirection::receive};
}

}  // namespace lockstep
