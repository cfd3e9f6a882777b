// The keys of encrypted connections: one for each purpose of a connection, derived from the job's secret.
//
// Both ends compute the same key from the secret and the ConnectionIdentity that they expect: role, group (which is
// unique to a generation), both ranks and index. A key therefore opens one link of one generation in one direction and
// nothing else. The name by which the connector selects it in the TLS handshake is a hash of the same fields, keyed
// with the secret: it discloses none of them (RFC 9257, section 4).
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "base/net/connection_identity.h"
#include "lockstep/base/secret.h"

namespace lockstep {

inline constexpr std::size_t kLinkKeyBytes = 32;

using LinkKeyName = std::array<std::byte, kLinkKeyBytes>;

struct LinkKey {
  LinkKeyName name{};
  std::array<std::byte, kLinkKeyBytes> key{};
};

// HKDF-SHA256 (RFC 5869) with 32 bytes of output.
std::array<std::byte, 32> hkdf_sha256(std::span<const std::byte> salt, std::span<const std::byte> input,
                                      std::span<const std::byte> info);

// `secret` must not be empty.
LinkKey derive_link_key(const Secret& secret, const ConnectionIdentity& identity);

// The keys that an acceptor knows, by name. Immutable after construction.
class LinkKeyRing {
 public:
  LinkKeyRing() = default;
  LinkKeyRing(const Secret& secret, const std::vector<ConnectionIdentity>& identities);

  struct Entry {
    LinkKey key;
    ConnectionIdentity identity;
  };
  // Null if no link has a key of this name.
  const Entry* find(std::span<const std::byte> name) const;

 private:
  std::map<LinkKeyName, Entry> entries_;
};

}  // namespace lockstep
