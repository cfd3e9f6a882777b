#include "base/net/auth.h"

#include <fmt/format.h>

#include <cassert>
#include <cstdlib>
#include <string_view>

#include "base/log.h"
#include "base/net/handshake.h"
#include "base/random.h"

namespace lockstep {

using handshake::MessageType;

std::string_view secret_advice(const Secret& secret) {
  return secret.empty()
             ? "no secret is set in this process: set LOCKSTEP_SECRET or LOCKSTEP_SECRET_FILE as in the other processes"
             : "use the same LOCKSTEP_SECRET in all processes of the job";
}

namespace {

// The payload of the next message; a refusal becomes the error that it carries.
Result<Bytes> receive_message(Channel& channel, MessageType expected, Deadline deadline) {
  std::array<std::byte, handshake::kHeaderBytes> raw;
  LOCKSTEP_RETURN_IF_ERROR(receive_all(channel, raw, deadline));
  const auto header = handshake::parse_header(raw);
  if (!header.ok()) return header.status();
  Bytes payload(header->payload_bytes);
  LOCKSTEP_RETURN_IF_ERROR(receive_all(channel, payload, deadline));
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
Status send_message(Channel& channel, const Bytes& message, Deadline deadline) {
  const Status sent = send_all(channel, message, deadline);
  if (sent.code() != StatusCode::peer_lost) return sent;
  const auto refusal = receive_message(channel, MessageType::refused, deadline);
  return refusal.ok() || refusal.status().code() == StatusCode::peer_lost ? sent : refusal.status();
}

Status connect_handshake(Channel& channel, const Secret& secret, const ConnectionIdentity& identity,
                         Deadline deadline) {
  handshake::Hello hello{.identity = identity};
  fill_random(hello.nonce);
  hello.identity.group = handshake::group_tag(secret, hello.nonce, identity.group);
  LOCKSTEP_RETURN_IF_ERROR(send_message(channel, handshake::format_hello(hello), deadline));

  const auto payload = receive_message(channel, MessageType::challenge, deadline);
  if (!payload.ok()) return payload.status();
  const auto challenge = handshake::parse_challenge(*payload);
  if (!challenge.ok()) return challenge.status();
  const auto mac = [&](handshake::Side side) {
    return handshake::compute_mac(secret, side, hello.nonce, challenge->nonce, identity);
  };
  if (!handshake::equal(mac(handshake::Side::acceptor), challenge->mac)) {
    return Status(StatusCode::unauthenticated,
                  fmt::format("it did not prove that it has this job's secret; {}", secret_advice(secret)));
  }
  LOCKSTEP_RETURN_IF_ERROR(send_message(channel, handshake::format_proof(mac(handshake::Side::connector)), deadline));
  const auto accepted = receive_message(channel, MessageType::accepted, deadline);
  return accepted.status();
}

}  // namespace

Status authenticate_as_connector(Channel& channel, const Secret& secret, const ConnectionIdentity& identity,
                                 Deadline deadline) {
  if (identity.role.size() > kMaxRoleBytes || identity.group.size() > kMaxGroupBytes) {
    return Status(StatusCode::invalid_argument,
                  fmt::format("connection role '{}' or group '{}' is longer than {} and {} bytes", identity.role,
                              identity.group, kMaxRoleBytes, kMaxGroupBytes));
  }
  const std::string peer = peer_text(channel.fd());
  const Status status =
      connect_handshake(channel, secret, identity, deadline.earlier(Deadline::after(kHandshakeTimeout)));
  return status.with_context(fmt::format("handshake with {} (role '{}')", peer, identity.role));
}

AcceptorHandshake::AcceptorHandshake(const Secret& secret, const std::string& group, const IdentityCheck& check)
    : secret_(secret), group_(group), check_(check) {}

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
  const std::string tag = std::exchange(identity_.group, group_);
  if (check_) LOCKSTEP_RETURN_IF_ERROR(check_(identity_));
  const std::string expected = handshake::group_tag(secret_, hello->nonce, group_);
  if (!handshake::equal(std::as_bytes(std::span(tag)), std::as_bytes(std::span(expected)))) {
    return Status(StatusCode::unauthenticated,
                  "it belongs to another group or generation, or has another secret; use the same LOCKSTEP_SECRET in "
                  "all processes of the job");
  }
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
