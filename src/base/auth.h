// Mutual proof that both ends of a fresh connection know the job's secret, before anything else
// is said on it: HMAC-SHA256 challenge-response, bound to what the connection is for.
//
//   connector                                   acceptor
//     hello{version, identity, nonce_c}  -->
//                                        <--  challenge{version, nonce_a, HMAC(acceptor side)}
//     proof{HMAC(connector side)}        -->
//                                        <--  accepted | refused{reason}
//
// Each HMAC covers a direction label, both nonces and the identity, so that an answer cannot be
// replayed on another connection, reflected, or used for another role, rank or group. Without a
// secret the same messages are exchanged with an empty key: identities and versions are still
// checked, but nothing is proved; callers must then stay on loopback (may_bind).
// Byte layout: docs/wire_format.md. Comparison is in constant time.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "base/socket.h"
#include "base/unique_fd.h"
#include "lockstep/base/deadline.h"
#include "lockstep/base/status.h"

namespace lockstep {

inline constexpr std::chrono::seconds kHandshakeTimeout{5};

// The job's secret; empty where none is set.
class Secret {
 public:
  Secret() = default;
  explicit Secret(std::string key) : key_(std::move(key)) {}
  bool empty() const { return key_.empty(); }
  const std::string& key() const { return key_; }

  // LOCKSTEP_SECRET, or the content of LOCKSTEP_SECRET_FILE (trailing newline removed; a file that
  // others may read is refused). Neither: an empty Secret. Both, or an empty value: an error.
  static Result<Secret> from_environment();

 private:
  std::string key_;
};

// Who connects, and what for. All fields are covered by the HMAC.
struct ConnectionIdentity {
  std::string role;   // "store", "control", "p2p", "data"
  std::string group;  // unique id of the group's generation; empty for the store
  std::int32_t from_rank = -1;
  std::int32_t to_rank = -1;
  std::uint32_t index = 0;  // which of several connections of this role

  friend bool operator==(const ConnectionIdentity&, const ConnectionIdentity&) = default;
};

// Connector's side. Blocks until done or min(deadline, 5 s).
Status authenticate_as_connector(int fd, const Secret& secret, const ConnectionIdentity& identity, Deadline deadline);

// Acceptor's side: `check` sees the announced identity before any proof is made and returns an
// error to refuse it (the reason is sent to the connector). Returns the proven identity. A refusal
// is logged with the peer's address.
using IdentityCheck = std::function<Status(const ConnectionIdentity&)>;
Result<ConnectionIdentity> authenticate_as_acceptor(int fd, const Secret& secret, const IdentityCheck& check,
                                                    Deadline deadline);

// Without a secret only loopback may be bound, unless LOCKSTEP_ALLOW_UNAUTHENTICATED=1. The error
// says what to set.
Status may_bind(const SocketAddress& address, const Secret& secret);

}  // namespace lockstep
