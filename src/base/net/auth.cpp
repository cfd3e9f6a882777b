#include "base/net/auth.h"

#include <fmt/format.h>

#include <cassert>
#include <cstdlib>
#include <string_view>

#include "base/log.h"
#include "base/net/handshake.h"
#include "base/printable.h"
#include "base/random.h"

namespace lockstep {

using handshake::MessageType;

namespace {

std::string_view advice(const Secret& secret) {
  return secret.empty()
             ? "no secret is set in this process: set LOCKSTEP_SECRET or LOCKSTEP_SECRET_FILE as in the other processes"
             : "use the same LOCKSTEP_SECRET in all processes of the job";
}

// The payload of the next message; a refusal becomes the error that it carries.
Result<Bytes> receive_message(int fd, MessageType expected, Deadline deadline) {
  std::array<std::byte, handshake::kHeaderBytes> raw;
  LOCKSTEP_RETURN_IF_ERROR(receive_all(fd, raw, deadline));
  const auto header = handshake::parse_header(raw);
  if (!header.ok()) return header.status();
  Bytes payload(header->payload_bytes);
  LOCKSTEP_RETURN_IF_ERROR(receive_all(fd, payload, deadline));
  // Every version can read a refusal, so that a process of another version gets the reason.
  if (header->type == MessageType::refused) {
    const auto refusal = handshake::parse_refused(payload);
    if (!refusal.ok()) return refusal.status();
    return Status(refusal->status.code(), "refused: " + refusal->status.message());
  }
  LOCKSTEP_RETURN_IF_ERROR(handshake::check_header(*header, expected));
  return payload;
}

// An acceptor that refuses may close the connection before all was sent to it: its refusal can still be
// read then, and explains more than the broken connection.
Status send_message(int fd, const Bytes& message, Deadline deadline) {
  const Status sent = send_all(fd, message, deadline);
  if (sent.code() != StatusCode::peer_lost) return sent;
  const auto refusal = receive_message(fd, MessageType::refused, deadline);
  return refusal.ok() || refusal.status().code() == StatusCode::peer_lost ? sent : refusal.status();
}

Status connect_handshake(int fd, const Secret& secret, const ConnectionIdentity& identity, Deadline deadline) {
  handshake::Hello hello{.identity = identity};
  fill_random(hello.nonce);
  LOCKSTEP_RETURN_IF_ERROR(send_message(fd, handshake::format_hello(hello), deadline));

  const auto payload = receive_message(fd, MessageType::challenge, deadline);
  if (!payload.ok()) return payload.status();
  const auto challenge = handshake::parse_challenge(*payload);
  if (!challenge.ok()) return challenge.status();
  const auto mac = [&](handshake::Side side) {
    return handshake::compute_mac(secret, side, hello.nonce, challenge->nonce, identity);
  };
  if (!handshake::equal(mac(handshake::Side::acceptor), challenge->mac)) {
    return Status(StatusCode::unauthenticated,
                  fmt::format("it did not prove that it has this job's secret; {}", advice(secret)));
  }
  LOCKSTEP_RETURN_IF_ERROR(send_message(fd, handshake::format_proof(mac(handshake::Side::connector)), deadline));
  const auto accepted = receive_message(fd, MessageType::accepted, deadline);
  return accepted.status();
}

}  // namespace

Status authenticate_as_connector(int fd, const Secret& secret, const ConnectionIdentity& identity, Deadline deadline) {
  if (identity.role.size() > kMaxRoleBytes || identity.group.size() > kMaxGroupBytes) {
    return Status(StatusCode::invalid_argument,
                  fmt::format("connection role '{}' or group '{}' is longer than {} and {} bytes", identity.role,
                              identity.group, kMaxRoleBytes, kMaxGroupBytes));
  }
  const std::string peer = peer_text(fd);
  const Status status = connect_handshake(fd, secret, identity, deadline.earlier(Deadline::after(kHandshakeTimeout)));
  return status.with_context(fmt::format("handshake with {} (role '{}')", peer, identity.role));
}

AcceptorHandshake::AcceptorHandshake(const Secret& secret, const IdentityCheck& check)
    : secret_(secret), check_(check) {}

std::size_t AcceptorHandshake::wanted() const {
  if (state_ != State::in_progress) return 0;
  if (input_.size() < handshake::kHeaderBytes) return handshake::kHeaderBytes - input_.size();
  const auto header = handshake::parse_header(std::span(input_).first(handshake::kHeaderBytes));
  return handshake::kHeaderBytes + header->payload_bytes - input_.size();
}

void AcceptorHandshake::feed(std::span<const std::byte> bytes) {
  assert(bytes.size() <= wanted());
  input_.insert(input_.end(), bytes.begin(), bytes.end());
  if (input_.size() < handshake::kHeaderBytes) return;
  const auto header = handshake::parse_header(std::span(input_).first(handshake::kHeaderBytes));
  Status status = header.status();
  if (status.ok()) {
    status = handshake::check_header(*header, challenged_ ? MessageType::proof : MessageType::hello);
  }
  if (status.ok() && wanted() > 0) return;
  if (status.ok()) {
    const auto payload = std::span(input_).subspan(handshake::kHeaderBytes);
    status = challenged_ ? take_proof(payload) : take_hello(payload);
    input_.clear();
  }
  if (!status.ok()) {
    refusal_ = std::move(status);
    state_ = State::refused;
    output_ = handshake::format_refused(refusal_);
  }
}

Status AcceptorHandshake::take_hello(std::span<const std::byte> payload) {
  auto hello = handshake::parse_hello(payload);
  if (!hello.ok()) return hello.status();
  identity_ = std::move(hello->identity);
  if (check_) LOCKSTEP_RETURN_IF_ERROR(check_(identity_));
  handshake::Challenge challenge;
  fill_random(challenge.nonce);
  const auto mac = [&](handshake::Side side) {
    return handshake::compute_mac(secret_, side, hello->nonce, challenge.nonce, identity_);
  };
  challenge.mac = mac(handshake::Side::acceptor);
  const handshake::Mac proof = mac(handshake::Side::connector);
  expected_proof_.assign(proof.begin(), proof.end());
  output_ = handshake::format_challenge(challenge);
  challenged_ = true;
  return {};
}

Status AcceptorHandshake::take_proof(std::span<const std::byte> payload) {
  const auto proof = handshake::parse_proof(payload);
  if (!proof.ok()) return proof.status();
  if (!handshake::equal(*proof, expected_proof_)) {
    return Status(StatusCode::unauthenticated,
                  "the proof is wrong: the connecting process does not have this job's secret");
  }
  state_ = State::accepted;
  output_ = handshake::format_accepted();
  return {};
}

Bytes format_refusal(const Status& reason) { return handshake::format_refused(reason); }

namespace {

Status accept_handshake(int fd, AcceptorHandshake& handshake, Deadline deadline) {
  std::array<std::byte, handshake::kHeaderBytes + handshake::kMaxPayloadBytes> buffer;
  while (handshake.state() == AcceptorHandshake::State::in_progress) {
    const auto wanted = std::span(buffer).first(handshake.wanted());
    LOCKSTEP_RETURN_IF_ERROR(receive_all(fd, wanted, deadline));
    handshake.feed(wanted);
    const Status sent = send_all(fd, handshake.take_output(), deadline);
    if (!sent.ok() && handshake.state() != AcceptorHandshake::State::refused) return sent;
  }
  return handshake.refusal();
}

}  // namespace

Result<ConnectionIdentity> authenticate_as_acceptor(int fd, const Secret& secret, const IdentityCheck& check,
                                                    Deadline deadline) {
  const std::string peer = peer_text(fd);
  AcceptorHandshake handshake(secret, check);
  Status status = accept_handshake(fd, handshake, deadline.earlier(Deadline::after(kHandshakeTimeout)));
  if (status.ok()) return handshake.identity();
  status = status.with_context(
      fmt::format("refused a connection from {} (role '{}')", peer, printable(handshake.identity().role)));
  log_warn("{}", status.message());
  return status;
}

Status may_bind(const SocketAddress& address, const Secret& secret) {
  if (!secret.empty() || address.is_loopback()) return {};
  const char* allowed = std::getenv("LOCKSTEP_ALLOW_UNAUTHENTICATED");
  if (allowed != nullptr && std::string_view(allowed) == "1") return {};
  return Status(
      StatusCode::unauthenticated,
      fmt::format("will not listen on {} without a secret, because any process that can reach it could join the job; "
                  "set LOCKSTEP_SECRET (or LOCKSTEP_SECRET_FILE) to the same value in all processes, use a "
                  "loopback address, or set LOCKSTEP_ALLOW_UNAUTHENTICATED=1 on a network that you trust",
                  address.to_string()));
}

}  // namespace lockstep
