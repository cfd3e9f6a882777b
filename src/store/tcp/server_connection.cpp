#include "store/tcp/server_connection.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/net/socket.h"

namespace lockstep {
namespace {

constexpr std::size_t kReceiveBytes = 64 << 10;
// Large enough to read large values in few steps, small enough to serve clients fairly.
constexpr std::size_t kReadBytesPerEvent = std::size_t{1} << 20;
constexpr std::size_t kCongestedBytes = std::size_t{1} << 20;
constexpr std::size_t kOverflowBytes = store_protocol::kMaxAnswerBytes + (std::size_t{64} << 20);

}  // namespace

ServerConnection::ServerConnection(UniqueFd fd, const AcceptRules& rules, const IdentityCheck& check,
                                   const StoreLimits& limits)
    : fd_(fd.get()), peer_(peer_text(fd_)), input_(store_protocol::max_request_bytes(limits)) {
  acceptor_.emplace(std::move(fd), rules, check);
  detect_dead_peer(fd_);
}

Status ServerConnection::read_some() {
  has_more_input_ = false;
  if (acceptor_) {
    LOCKSTEP_RETURN_IF_ERROR(acceptor_->advance());
    if (!acceptor_->accepted()) return {};
    channel_ = acceptor_->take();
    acceptor_.reset();
  }
  std::array<std::byte, kReceiveBytes> buffer;
  for (std::size_t total = 0; total < kReadBytesPerEvent;) {
    const IoResult got = channel_.receive(buffer);
    if (got.would_block) return {};
    if (got.error != 0) return Status(StatusCode::peer_lost, channel_error_text(got.error));
    if (got.closed) return Status(StatusCode::peer_lost, "it closed the connection");
    input_.append(std::span(buffer).first(got.bytes));
    if (got.bytes < buffer.size()) return {};
    total += got.bytes;
  }
  has_more_input_ = true;
  return {};
}

void ServerConnection::queue(Bytes frame) {
  if (frame.empty()) return;
  queued_bytes_ += frame.size();
  output_.push_back(std::move(frame));
}

Status ServerConnection::flush() {
  while (!output_.empty()) {
    const IoResult sent = channel_.send(std::span<const std::byte>(output_.front()).subspan(sent_of_first_));
    if (sent.would_block) return {};
    if (sent.error != 0) return Status(StatusCode::peer_lost, channel_error_text(sent.error));
    queued_bytes_ -= sent.bytes;
    sent_of_first_ += sent.bytes;
    if (sent_of_first_ == output_.front().size()) {
      output_.pop_front();
      sent_of_first_ = 0;
    }
  }
  return {};
}

bool ServerConnection::congested() const { return queued_bytes_ > kCongestedBytes; }

bool ServerConnection::overflowing() const { return queued_bytes_ > kOverflowBytes; }

}  // namespace lockstep
