#include "transport/stream/stream_flow.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
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

StreamFlow::StreamFlow(StreamDirection direction, std::span<const int> fds, std::size_t stripe_bytes)
    : direction_(direction),
      // With one connection there is nothing to stripe.
      stripe_bytes_(fds.size() > 1 ? stripe_bytes : std::numeric_limits<std::size_t>::max()),
      connections_(fds.size()) {
  for (std::size_t i = 0; i < fds.size(); ++i) connections_[i].fd = fds[i];
}

void StreamFlow::open() {
  open_ = true;
  completed_ = 0;
  memory_.clear();
  for (std::size_t i = 0; i < connections_.size(); ++i) {
    connections_[i].position = i == 0 ? 0 : i * stripe_bytes_;
    connections_[i].header_done = 0;
    connections_[i].blocked = false;
  }
}

bool StreamFlow::idle() const {
  return !open_ || (completed_ == memory_.end() && connections_.front().header_done == kStreamHeaderBytes);
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
    // sendmsg only reads through its iovecs, although their type is not const.
    std::byte* bytes =
        direction_ == StreamDirection::send ? const_cast<std::byte*>(header.data()) : connection.header.data();
    ranges[used++] = {bytes + connection.header_done, header_left};
  }
  const std::size_t asked = header_left + gather(connection, limit, ranges, used);

  msghdr message{};
  message.msg_iov = ranges.data();
  message.msg_iovlen = used;
  ssize_t result = 0;
  do {
    result = direction_ == StreamDirection::send ? ::sendmsg(connection.fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT)
                                                 : ::recvmsg(connection.fd, &message, MSG_DONTWAIT);
  } while (result < 0 && errno == EINTR);

  if (result < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
    connection.blocked = true;
    return {};
  }
  if (result < 0) return {.outcome = Outcome::failed, .error = errno};
  if (result == 0) return {.outcome = Outcome::closed};
  const auto bytes = static_cast<std::size_t>(result);
  connection.blocked = bytes < asked;
  account(connection, bytes);
  return {.outcome = Outcome::moved,
          .header_arrived = header_left > 0 && bytes >= header_left && direction_ == StreamDirection::receive};
}

}  // namespace lockstep
