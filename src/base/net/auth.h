// Mutual proof that both ends of a new connection have the job's secret, before anything else
// is sent on it: HMAC-SHA256 challenge-response, bound to the purpose of the connection.
//
//   connector                                   acceptor
//     hello{version, identity, nonce_c}  -->
//                                        <--  challenge{version, nonce_a, HMAC(acceptor side)}
//     proof{HMAC(connector side)}        -->
//                                        <--  accepted | refused{reason}
//
// Each HMAC covers a direction label, both nonces and the identity, so that an answer cannot be
// replayed on another connection, reflected, or used for another role, rank or group. The hello
// carries a keyed hash of the group, not its name. Between hosts the messages travel inside an
// encrypted channel: connect_channel.h, accept_channel.h. Without a secret the same messages are exchanged with an
// empty key: identities and versions are still checked, but nothing is proven; callers must then stay on loopback
// (may_bind). Byte layout: docs/wire_format.md. Comparison is in constant time.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "base/codec.h"
#include "base/net/channel.h"
#include "base/net/connection_identity.h"
#include "base/net/socket.h"
#include "lockstep/base/deadline.h"
#include "lockstep/base/secret.h"
#include "lockstep/base/status.h"

namespace lockstep {

inline constexpr std::chrono::seconds kHandshakeTimeout{5};

// Connector's side. Blocks until done or min(deadline, 5 s). unauthenticated: the two ends do not
// share a secret; protocol_error: the other end is not Lockstep, or another version; otherwise
// the code and reason with which the acceptor refused.
Status authenticate_as_connector(Channel& channel, const Secret& secret, const ConnectionIdentity& identity,
                                 Deadline deadline);

// Sees the announced identity before any proof is made and returns an error to refuse it (the reason is sent to the
// connector).
using IdentityCheck = std::function<Status(const ConnectionIdentity&)>;

// The acceptor's side without blocking, for servers that poll: feed it what arrives, send its
// output. Nothing else may be read from or written to the connection until the handshake has ended. The caller
// enforces the deadline. Not thread-safe.
class AcceptorHandshake {
 public:
  enum class State { in_progress, accepted, refused };

  // Accepts connections to `group` only. The references must outlive this.
  AcceptorHandshake(const Secret& secret, const std::string& group, const IdentityCheck& check);

  // How many bytes to read next, at most: never beyond the end of the handshake. 0 once it ended.
  std::size_t wanted() const;
  // Takes up to wanted() bytes that arrived (more is a bug in the caller).
  void feed(std::span<const std::byte> bytes);
  // What must be sent now; a refusal too must be sent before the connection is closed.
  Bytes take_output() { return std::exchange(output_, {}); }

  State state() const { return state_; }
  // The hello was right, and the challenge was made.
  bool challenged() const { return challenged_; }
  // Announced by the connector; proven only once accepted.
  const ConnectionIdentity& identity() const { return identity_; }
  // Why it was refused.
  const Status& refusal() const { return refusal_; }

 private:
  Status take_hello(std::span<const std::byte> payload);
  Status take_proof(std::span<const std::byte> payload);

  const Secret& secret_;
  const std::string& group_;
  const IdentityCheck& check_;
  State state_ = State::in_progress;
  bool challenged_ = false;
  Bytes input_;
  Bytes output_;
  ConnectionIdentity identity_;
  Bytes expected_proof_;
  Status refusal_;
};

// What to do about a secret that is missing or wrong, seen from a process that has `secret`.
std::string_view secret_advice(const Secret& secret);

// The bytes with which an acceptor refuses a connection for its own reason (too many connections, for
// example) before reading anything.
Bytes format_refusal(const Status& reason);

// Without a secret only loopback may be bound, unless LOCKSTEP_ALLOW_UNAUTHENTICATED=1. The error
// names the variables to set.
Status may_bind(const SocketAddress& address, const Secret& secret);

}  // namespace lockstep
