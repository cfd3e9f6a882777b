#include "base/net/accept_channel.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "base/net/handshake.h"
#include "base/net/socket.h"
#include "base/printable.h"

namespace lockstep {
namespace {

bool is_over_network(int fd) {
  const auto local = local_address(fd);
  return local.ok() && local->family() != AF_UNIX;
}

Status lost(int error) { return Status(StatusCode::peer_lost, errno_text(error)); }
Status closed() { return Status(StatusCode::peer_lost, "it closed the connection"); }

// Answers are far smaller than an empty socket buffer.
Status does_not_read() { return Status(StatusCode::timed_out, "it does not read the answers of the handshake"); }

}  // namespace

ChannelAcceptor::ChannelAcceptor(UniqueFd fd, const AcceptRules& rules, IdentityCheck check)
    : rules_(rules),
      caller_check_(std::move(check)),
      check_([this](const ConnectionIdentity& identity) { return check_identity(identity); }),
      over_network_(is_over_network(fd.get())),
      fd_(std::move(fd)),
      handshake_(rules_.secret, rules_.group, check_) {}

Status ChannelAcceptor::check_identity(const ConnectionIdentity& identity) const {
  const bool encrypted = channel_.encrypted();
  const bool expected = over_network_ && !rules_.secret.empty() && encrypts(rules_.policy, identity.role);
  if (encrypted != expected && identity.role == "data" && !rules_.secret.empty()) {
    return Status(
        StatusCode::unauthenticated,
        fmt::format("LOCKSTEP_ENCRYPT differs: it is '{}' in the process that refuses, and the connecting process {} "
                    "its data; set it to the same value in all processes of the job",
                    to_string(rules_.policy), encrypted ? "encrypts" : "does not encrypt"));
  }
  if (encrypted != expected) {
    return Status(StatusCode::unauthenticated,
                  "the connection is not encrypted, but must be: the connecting process has no secret; set "
                  "LOCKSTEP_SECRET or LOCKSTEP_SECRET_FILE as in the other processes");
  }
  if (encrypted && (key_owner_ == nullptr || !(identity == *key_owner_))) {
    return Status(StatusCode::unauthenticated, "the key belongs to another link than the announced one");
  }
  return caller_check_ ? caller_check_(identity) : Status();
}

Status ChannelAcceptor::advance() {
  while (!accepted()) {
    const auto step = channel_.valid() ? exchange_messages() : tls_ ? continue_encryption() : read_first_bytes();
    if (!step.ok()) return step.status();
    if (*step == Step::pending) return {};
  }
  return {};
}

Result<ChannelAcceptor::Step> ChannelAcceptor::read_first_bytes() {
  std::array<std::byte, handshake::kHeaderBytes> first;
  const ssize_t got = ::recv(fd_.get(), first.data(), first.size(), 0);
  if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return Step::pending;
  if (got < 0) return lost(errno);
  if (got == 0) return closed();
  LOCKSTEP_RETURN_IF_ERROR(start(std::span(first).first(static_cast<std::size_t>(got))));
  return Step::done;
}

// The first byte tells what the connecting process believes.
Status ChannelAcceptor::start(std::span<const std::byte> first) {
  if (first.front() != kTlsHandshakeRecord) {
    channel_ = Channel(std::move(fd_));
    return feed(first);
  }
  if (rules_.secret.empty() || !over_network_) {
    const Status why(StatusCode::unauthenticated,
                     "the connecting process encrypts, because it has a secret, but this one has none; set "
                     "LOCKSTEP_SECRET or LOCKSTEP_SECRET_FILE to the same value in all processes of the job");
    refuse(why);
    return why;
  }
  auto tls = TlsStream::acceptor([this](std::span<const std::byte> name) -> const LinkKey* {
    const auto* entry = rules_.keys.find(name);
    if (entry == nullptr) return nullptr;
    key_owner_ = &entry->identity;
    return &entry->key;
  });
  if (!tls.ok()) return tls.status();
  tls_ = *std::move(tls);
  std::copy(first.begin(), first.end(), tls_->input_space().begin());
  tls_->add_input(first.size());
  return {};
}

Result<ChannelAcceptor::Step> ChannelAcceptor::continue_encryption() {
  if (tls_->needs_input()) {
    const auto space = tls_->input_space();
    const ssize_t got = ::recv(fd_.get(), space.data(), space.size(), 0);
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return Step::pending;
    if (got < 0) return lost(errno);
    if (got == 0) return closed();
    tls_->add_input(static_cast<std::size_t>(got));
  }
  const Status status = tls_->handshake();
  const auto output = tls_->output();
  const ssize_t sent = output.empty() ? 0 : ::send(fd_.get(), output.data(), output.size(), MSG_NOSIGNAL);
  LOCKSTEP_RETURN_IF_ERROR(status);
  if (sent != static_cast<ssize_t>(output.size())) return sent < 0 && errno != EAGAIN ? lost(errno) : does_not_read();
  tls_->consume_output(output.size());
  key_accepted_ = key_accepted_ || (key_owner_ != nullptr && sent > 0);
  if (tls_->established()) channel_ = Channel(std::move(fd_), std::move(tls_));
  return Step::done;
}

Result<ChannelAcceptor::Step> ChannelAcceptor::exchange_messages() {
  std::array<std::byte, 2048> buffer;
  // Not more: what follows belongs to the connection's purpose.
  const auto wanted = std::span(buffer).first(std::min(handshake_.wanted(), buffer.size()));
  const IoResult got = channel_.receive(wanted);
  if (got.would_block) return Step::pending;
  if (got.error != 0) return Status(StatusCode::peer_lost, channel_error_text(got.error));
  if (got.closed) return closed();
  LOCKSTEP_RETURN_IF_ERROR(feed(wanted.first(got.bytes)));
  return Step::done;
}

Status ChannelAcceptor::feed(std::span<const std::byte> bytes) {
  handshake_.feed(bytes);
  const Bytes output = handshake_.take_output();
  const IoResult sent = output.empty() ? IoResult{} : channel_.send(output);
  if (handshake_.state() == AcceptorHandshake::State::refused) return handshake_.refusal();
  if (sent.error != 0) return lost(sent.error);
  return sent.bytes == output.size() ? Status() : does_not_read();
}

void ChannelAcceptor::refuse(const Status& why) {
  if (channel_.valid() || tls_) return;
  const Bytes refusal = format_refusal(why);
  [[maybe_unused]] const ssize_t sent = ::send(fd_.get(), refusal.data(), refusal.size(), MSG_NOSIGNAL);
}

}  // namespace lockstep
