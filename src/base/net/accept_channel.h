// The accepting side of a new connection: encryption, then the mutual proof of its purpose. Nothing blocks.
#pragma once

#include <string>

#include "base/net/auth.h"
#include "base/net/channel.h"
#include "base/net/encryption.h"
#include "base/net/link_key.h"
#include "base/unique_fd.h"
#include "lockstep/base/secret.h"
#include "lockstep/base/status.h"

namespace lockstep {

// What all connections to one listener have in common.
struct AcceptRules {
  Secret secret = {};
  std::string group = {};
  EncryptionPolicy policy = EncryptionPolicy::all;
  LinkKeyRing keys = {};  // of all connections that may come over TCP, if there is a secret
};

// From an accepted socket to an authenticated channel. Used by one thread, which polls the socket for POLLIN, calls
// advance(), and enforces the deadline.
class ChannelAcceptor {
 public:
  // `rules` must outlive this; `check` is called by advance().
  ChannelAcceptor(UniqueFd fd, const AcceptRules& rules, IdentityCheck check);
  ChannelAcceptor(const ChannelAcceptor&) = delete;
  ChannelAcceptor& operator=(const ChannelAcceptor&) = delete;

  int fd() const { return channel_.valid() ? channel_.fd() : fd_.get(); }
  // Reads what has arrived and answers it. An error: the connection is refused, which the peer has been told as far as
  // possible, or it has ended (peer_lost).
  Status advance();
  bool accepted() const { return handshake_.state() == AcceptorHandshake::State::accepted; }
  // The peer has sent a first message that only processes of the job can make (without a secret: any that is right).
  // Not a proof, because it may be a copy of what was sent earlier.
  bool has_spoken() const { return key_accepted_ || handshake_.challenged(); }
  // Proven once accepted.
  const ConnectionIdentity& identity() const { return handshake_.identity(); }
  // Once accepted. What the peer sent after the handshake may be buffered.
  Channel take() { return std::move(channel_); }

  // Tells a peer that has not sent anything yet why it is refused, as far as the socket accepts that at once.
  void refuse(const Status& why);

 private:
  enum class Step { pending, done };
  Result<Step> read_first_bytes();
  Status start(std::span<const std::byte> first);
  Result<Step> continue_encryption();
  Result<Step> exchange_messages();
  Status feed(std::span<const std::byte> bytes);
  Status check_identity(const ConnectionIdentity& identity) const;

  const AcceptRules& rules_;
  const IdentityCheck caller_check_;
  const IdentityCheck check_;
  const bool over_network_;
  UniqueFd fd_;                     // until the channel exists
  std::unique_ptr<TlsStream> tls_;  // likewise
  const ConnectionIdentity* key_owner_ = nullptr;
  bool key_accepted_ = false;
  Channel channel_;
  AcceptorHandshake handshake_;
};

}  // namespace lockstep
