#include "base/net/connect_channel.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "base/net/handshake.h"
#include "base/net/link_key.h"
#include "base/net/socket.h"

namespace lockstep {
namespace {

constexpr std::byte kPlainMessage{'L'};  // the first byte of our own messages

Result<std::span<std::byte>> receive_something(int fd, std::span<std::byte> space, Deadline deadline) {
  while (true) {
    const ssize_t got = ::recv(fd, space.data(), space.size(), 0);
    if (got > 0) return space.first(static_cast<std::size_t>(got));
    if (got == 0) return Status(StatusCode::peer_lost, "it closed the connection before it was encrypted");
    if (errno == EINTR) continue;
    if (errno != EAGAIN && errno != EWOULDBLOCK) return Status(StatusCode::peer_lost, errno_text(errno));
    LOCKSTEP_RETURN_IF_ERROR(wait_ready(fd, POLLIN, deadline));
  }
}

// The peer's answer is not encrypted. It is not trusted, except for the reason that people read; a busy server's
// request to try again may be followed, because anyone could have prevented the connection just as well.
Status plain_answer(int fd, std::span<const std::byte> start, Deadline deadline) {
  Bytes answer(start.begin(), start.end());
  std::string reason = "it did not say why";
  StatusCode code = StatusCode::unauthenticated;
  const auto complete_to = [&](std::size_t size) {
    const std::size_t have = std::min(answer.size(), size);
    answer.resize(std::max(answer.size(), size));
    return receive_all(fd, std::span(answer).subspan(have, size - have), deadline).ok();
  };
  if (complete_to(handshake::kHeaderBytes)) {
    const auto header = handshake::parse_header(std::span(answer).first(handshake::kHeaderBytes));
    if (header.ok() && header->type == handshake::MessageType::refused &&
        complete_to(handshake::kHeaderBytes + header->payload_bytes)) {
      const auto payload = std::span(answer).subspan(handshake::kHeaderBytes, header->payload_bytes);
      if (const auto refusal = handshake::parse_refused(payload); refusal.ok()) {
        reason = refusal->status.message();
        const StatusCode given = refusal->status.code();
        if (given == StatusCode::unavailable || given == StatusCode::resource_exhausted) code = given;
      }
    }
  }
  return Status(code, fmt::format("it answered without encryption, which this process requires because the job has a "
                                  "secret; refused: {}",
                                  reason));
}

Status encrypt(int fd, TlsStream& tls, const Secret& secret, Deadline deadline) {
  for (bool first = true;; first = false) {
    const Status status = tls.handshake();
    if (const auto output = tls.output(); !output.empty()) {
      const Status sent = send_all(fd, output, deadline);
      tls.consume_output(output.size());
      // The answer of an acceptor that refuses explains more than the broken connection.
      if (!sent.ok() && sent.code() != StatusCode::peer_lost) return sent;
    }
    if (!status.ok()) {
      return Status(
          status.code(),
          fmt::format("it does not have the key of this connection ({}): it has another secret, or belongs to "
                      "another group or generation; {}",
                      status.message(), secret_advice(secret)));
    }
    if (tls.established()) return {};
    const auto got = receive_something(fd, tls.input_space(), deadline);
    if (!got.ok()) return got.status();
    if (first && got->front() == kPlainMessage) return plain_answer(fd, *got, deadline);
    if (first && got->front() != kTlsHandshakeRecord && got->front() != kTlsAlertRecord) {
      return Status(StatusCode::protocol_error,
                    "the peer sent bytes that are not a Lockstep handshake; does another program use this port?");
    }
    tls.add_input(got->size());
  }
}

Result<Channel> open_channel(UniqueFd fd, const Secret& secret, const ConnectionIdentity& identity,
                             EncryptionPolicy policy, Deadline deadline) {
  const auto local = local_address(fd.get());
  const bool over_network = local.ok() && local->family() != AF_UNIX;
  if (secret.empty() || !over_network || !encrypts(policy, identity.role)) return Channel(std::move(fd));
  auto tls = TlsStream::connector(derive_link_key(secret, identity));
  if (!tls.ok()) return tls.status();
  LOCKSTEP_RETURN_IF_ERROR(encrypt(fd.get(), **tls, secret, deadline));
  return Channel(std::move(fd), *std::move(tls));
}

}  // namespace

Result<Channel> connect_channel(UniqueFd fd, const Secret& secret, const ConnectionIdentity& identity,
                                EncryptionPolicy policy, Deadline deadline) {
  deadline = deadline.earlier(Deadline::after(kHandshakeTimeout));
  const std::string peer = peer_text(fd.get());
  auto channel = open_channel(std::move(fd), secret, identity, policy, deadline);
  if (!channel.ok()) {
    return channel.status().with_context(fmt::format("handshake with {} (role '{}')", peer, identity.role));
  }
  LOCKSTEP_RETURN_IF_ERROR(authenticate_as_connector(*channel, secret, identity, deadline));
  return channel;
}

}  // namespace lockstep
