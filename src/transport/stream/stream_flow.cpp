#include "transport/stream/stream_flow.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <limits>

namespace lockstep {

void PieceQueue::clear() {
  pieces_.clear();
  head_ = 0;
  end_ = 0;
}

void PieceQueue::push(std::byte* data, std::size_t size) {
  if (size == 0) return;
  if (head_ < pieces_.size() && pieces_.back().data + pieces_.back().size == data) {
    pieces_.back().size += size;
  } else {
    pieces_.push_back({data, end_, size});
  }
  end_ += size;
}

void PieceQueue::retire(std::size_t position) {
  while (head_ < pieces_.size() && pieces_[head_].begin + pieces_[head_].size <= position) ++head_;
  if (head_ == pieces_.size()) {
    pieces_.clear();
    head_ = 0;
  }
}

std::span<std::byte> PieceQueue::at(std::size_t position) const {
  for (std::size_t i = head_; i < pieces_.size(); ++i) {
    const Piece& piece = pieces_[i];
    if (position >= piece.begin && position < piece.begin + piece.size) {
      return std::span(piece.data, piece.size).subspan(position - piece.begin);
    }
  }
  return {};
}

StreamFlow::StreamFlow(StreamDirection direction, std::span<const int> fds, std::size_t stripe_bytes)
    : direction_(direction),
      // With one lane there is nothing to stripe.
      stripe_bytes_(fds.size() > 1 ? stripe_bytes : std::numeric_limits<std::size_t>::max()),
      lanes_(fds.size()) {
  for (std::size_t i = 0; i < fds.size(); ++i) lanes_[i].fd = fds[i];
}

void StreamFlow::open() {
  open_ = true;
  completed_ = 0;
  pieces_.clear();
  for (std::size_t i = 0; i < lanes_.size(); ++i) {
    lanes_[i].position = i == 0 ? 0 : i * stripe_bytes_;
    lanes_[i].header_done = 0;
    lanes_[i].blocked = false;
  }
}

bool StreamFlow::idle() const {
  return !open_ || (completed_ == pieces_.end() && lanes_.front().header_done == kStreamHeaderBytes);
}

bool StreamFlow::wants(std::size_t lane) const {
  if (!open_) return false;
  return lanes_[lane].position < pieces_.end() || (lane == 0 && lanes_[lane].header_done < kStreamHeaderBytes);
}

// Where a lane stands after `bytes` more: inside its stripe, or at the start of its next one.
std::size_t StreamFlow::position_behind(std::size_t position, std::size_t bytes) const {
  const std::size_t left_in_stripe = stripe_bytes_ - position % stripe_bytes_;
  if (bytes < left_in_stripe) return position + bytes;
  return position + bytes + (lanes_.size() - 1) * stripe_bytes_;
}

std::size_t StreamFlow::gather(const Lane& lane, std::size_t limit, std::span<iovec> parts, std::size_t& used) const {
  std::size_t total = 0;
  std::size_t position = lane.position;
  while (total < limit && used < parts.size() && position < pieces_.end()) {
    const auto memory = pieces_.at(position);
    const std::size_t size = std::min({memory.size(), stripe_bytes_ - position % stripe_bytes_, limit - total});
    parts[used++] = {memory.data(), size};
    total += size;
    position = position_behind(position, size);
  }
  return total;
}

void StreamFlow::account(Lane& lane, std::size_t bytes) {
  const std::size_t of_header = std::min(bytes, kStreamHeaderBytes - lane.header_done);
  lane.header_done += of_header;
  bytes -= of_header;
  while (bytes > 0) {
    const std::size_t size = std::min(bytes, stripe_bytes_ - lane.position % stripe_bytes_);
    lane.position = position_behind(lane.position, size);
    bytes -= size;
  }
  std::size_t first_missing = pieces_.end();
  for (const Lane& each : lanes_) first_missing = std::min(first_missing, each.position);
  completed_ = first_missing;
  pieces_.retire(completed_);
}

StreamFlow::Moved StreamFlow::move(std::size_t index, const StreamHeaderBytes& header, std::size_t limit) {
  Lane& lane = lanes_[index];
  std::array<iovec, kMaxParts> parts;
  std::size_t used = 0;
  const std::size_t header_left = kStreamHeaderBytes - lane.header_done;
  if (header_left > 0) {
    // sendmsg only reads through its iovecs, whose type cannot say so.
    std::byte* bytes = direction_ == StreamDirection::send ? const_cast<std::byte*>(header.data()) : lane.header.data();
    parts[used++] = {bytes + lane.header_done, header_left};
  }
  const std::size_t asked = header_left + gather(lane, limit, parts, used);

  msghdr message{};
  message.msg_iov = parts.data();
  message.msg_iovlen = used;
  ssize_t result = 0;
  do {
    result = direction_ == StreamDirection::send ? ::sendmsg(lane.fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT)
                                                 : ::recvmsg(lane.fd, &message, MSG_DONTWAIT);
  } while (result < 0 && errno == EINTR);

  if (result < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
    lane.blocked = true;
    return {};
  }
  if (result < 0) return {.outcome = Outcome::failed, .error = errno};
  if (result == 0) return {.outcome = Outcome::closed};
  const auto bytes = static_cast<std::size_t>(result);
  lane.blocked = bytes < asked;
  account(lane, bytes);
  return {.outcome = Outcome::moved,
          .header_arrived = header_left > 0 && bytes >= header_left && direction_ == StreamDirection::receive};
}

}  // namespace lockstep
