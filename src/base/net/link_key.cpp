#include "base/net/link_key.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "base/codec.h"
#include "base/log.h"

namespace lockstep {
namespace {

using Digest = std::array<std::byte, 32>;

Digest hmac_sha256(std::span<const std::byte> key, std::span<const std::byte> data) {
  Digest digest{};
  unsigned size = 0;
  if (::HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
             reinterpret_cast<const unsigned char*>(data.data()), data.size(),
             reinterpret_cast<unsigned char*>(digest.data()), &size) == nullptr ||
      size != digest.size()) {
    log_error("HMAC-SHA256 failed in OpenSSL; no key can be derived");
    std::abort();
  }
  return digest;
}

std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

// The first block of HKDF-Expand, which is all of a 32-byte output.
Digest expand(const Digest& extracted, std::span<const std::byte> info) {
  Bytes data(info.begin(), info.end());
  data.push_back(std::byte{1});
  return hmac_sha256(extracted, data);
}

Bytes info_for(std::string_view purpose, const ConnectionIdentity& identity) {
  ByteWriter writer;
  writer.put_string(purpose);
  writer.put_string(identity.role);
  writer.put_string(identity.group);
  writer.put(identity.from_rank);
  writer.put(identity.to_rank);
  writer.put(identity.index);
  return writer.take();
}

constexpr std::string_view kSalt = "lockstep links 1";

Digest extract(const Secret& secret) { return hmac_sha256(bytes_of(kSalt), bytes_of(secret.key())); }

LinkKey derive(const Digest& extracted, const ConnectionIdentity& identity) {
  return {.name = expand(extracted, info_for("name", identity)), .key = expand(extracted, info_for("key", identity))};
}

}  // namespace

std::array<std::byte, 32> hkdf_sha256(std::span<const std::byte> salt, std::span<const std::byte> input,
                                      std::span<const std::byte> info) {
  return expand(hmac_sha256(salt, input), info);
}

LinkKey derive_link_key(const Secret& secret, const ConnectionIdentity& identity) {
  return derive(extract(secret), identity);
}

LinkKeyRing::LinkKeyRing(const Secret& secret, const std::vector<ConnectionIdentity>& identities) {
  if (secret.empty()) return;
  const Digest extracted = extract(secret);
  for (const auto& identity : identities) {
    const LinkKey key = derive(extracted, identity);
    entries_.emplace(key.name, Entry{key, identity});
  }
}

const LinkKeyRing::Entry* LinkKeyRing::find(std::span<const std::byte> name) const {
  LinkKeyName wanted{};
  if (name.size() != wanted.size()) return nullptr;
  std::copy(name.begin(), name.end(), wanted.begin());
  const auto entry = entries_.find(wanted);
  return entry == entries_.end() ? nullptr : &entry->second;
}

}  // namespace lockstep
