#include "store/tcp/server_connection.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>

namespace lockstep {
namespace {

constexpr std::size_t kReceiveBytes = 64 << 10;
// Large enough to read large values in few steps, small enough to serve clients fairly.
constexpr std::size_t kReadBytesPerEvent = std::size_t{1} << 20;
constexpr std::size_t kCongestedBytes = std::size_t{1} << 20;
constexpr std::size_t kOverflowBytes = store_protocol::kMaxAnswerBytes + (std::size_t{64} << 20);

}  // namespace

ServerConnection::ServerConnection(UniqueFd fd, const Secret& secret, const IdentityCheck& check,
                                   const StoreLimits& limits)
    : fd_(std::move(fd)),
      peer_(peer_text(fd_.get())),
      handshake_(secret, check),
      input_(store_protocol::max_request_bytes(limits)) {
  detect_dead_peer(fd_.get());
}

Status ServerConnection::read_some() {
  std::array<std::byte, kReceiveBytes> buffer;
  for (std::size_t total = 0; total < kReadBytesPerEvent;) {
    // During the handshake no more than it needs: the bytes after it are requests.
    const std::size_t wanted = authenticated() ? buffer.size() : handshake_.wanted();
    const ssize_t got = ::recv(fd_.get(), buffer.data(), wanted, 0);
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return {};
    if (got < 0) return Status(StatusCode::peer_lost, errno_text(errno));
    if (got == 0) return Status(StatusCode::peer_lost, "it closed the connection");
    const auto bytes = std::span(buffer).first(static_cast<std::size_t>(got));
    if (!authenticated()) return continue_handshake(bytes);
    input_.append(bytes);
    if (bytes.size() < buffer.size()) return {};
    total += bytes.size();
  }
  return {};
}

Status ServerConnection::continue_handshake(std::span<const std::byte> bytes) {
  handshake_.feed(bytes);
  queue(handshake_.take_output());
  const Status flushed = flush();
  return handshake_.state() == AcceptorHandshake::State::refused ? handshake_.refusal() : flushed;
}

void ServerConnection::queue(Bytes frame) {
  if (frame.empty()) return;
  queued_bytes_ += frame.size();
  output_.push_back(std::move(frame));
}

Status ServerConnection::flush() {
  while (!output_.empty()) {
    const auto rest = std::span<const std::byte>(output_.front()).subspan(sent_of_first_);
    const ssize_t sent = ::send(fd_.get(), rest.data(), rest.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return {};
    if (sent < 0) return Status(StatusCode::peer_lost, errno_text(errno));
    queued_bytes_ -= static_cast<std::size_t>(sent);
    sent_of_first_ += static_cast<std::size_t>(sent);
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
