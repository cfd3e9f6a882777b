#include "base/net/handshake.h"

#include <fmt/format.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "base/log.h"
#include "base/printable.h"

namespace lockstep::handshake {
namespace {

Bytes with_header(MessageType type, std::span<const std::byte> payload) {
  ByteWriter writer;
  writer.put(kMagic);
  writer.put(kWireVersion);
  writer.put(static_cast<std::uint16_t>(type));
  writer.put(static_cast<std::uint32_t>(payload.size()));
  writer.put_bytes(payload);
  return writer.take();
}

void put_identity(ByteWriter& writer, const ConnectionIdentity& identity) {
  writer.put_string(identity.role);
  writer.put_string(identity.group);
  writer.put(identity.from_rank);
  writer.put(identity.to_rank);
  writer.put(identity.index);
}

template <std::size_t N>
void take_array(ByteReader& reader, std::array<std::byte, N>& out) {
  const auto raw = reader.take(N);
  std::copy(raw.begin(), raw.end(), out.begin());
}

Status malformed(std::string_view message) {
  return Status(StatusCode::protocol_error, fmt::format("malformed handshake message '{}'", message));
}

const char* name_of(MessageType type) {
  switch (type) {
    case MessageType::hello: return "hello";
    case MessageType::challenge: return "challenge";
    case MessageType::proof: return "proof";
    case MessageType::accepted: return "accepted";
    case MessageType::refused: return "refused";
  }
  return "unknown";
}

}  // namespace

Result<Header> parse_header(std::span<const std::byte> bytes) {
  ByteReader reader(bytes);
  const auto magic = reader.get<std::uint32_t>();
  Header header;
  header.version = reader.get<std::uint16_t>();
  header.type = static_cast<MessageType>(reader.get<std::uint16_t>());
  header.payload_bytes = reader.get<std::uint32_t>();
  if (!reader.complete() || magic != kMagic) {
    return Status(StatusCode::protocol_error,
                  "the peer sent bytes that are not a Lockstep handshake; does another program use this port?");
  }
  if (header.payload_bytes > kMaxPayloadBytes) {
    return Status(StatusCode::protocol_error, fmt::format("handshake message of {} bytes; at most {} are allowed",
                                                          header.payload_bytes, kMaxPayloadBytes));
  }
  return header;
}

Status check_header(const Header& header, MessageType expected) {
  if (header.version != kWireVersion) {
    return Status(StatusCode::protocol_error,
                  fmt::format("the peer uses wire version {}, this process version {}; run the same version of "
                              "Lockstep on all hosts",
                              header.version, kWireVersion));
  }
  if (header.type != expected) {
    return Status(StatusCode::protocol_error,
                  fmt::format("handshake message '{}' ({}), but '{}' was expected", name_of(header.type),
                              static_cast<unsigned>(header.type), name_of(expected)));
  }
  return {};
}

Bytes format_hello(const Hello& hello) {
  ByteWriter writer;
  writer.put_bytes(hello.nonce);
  put_identity(writer, hello.identity);
  return with_header(MessageType::hello, writer.bytes());
}

Bytes format_challenge(const Challenge& challenge) {
  ByteWriter writer;
  writer.put_bytes(challenge.nonce);
  writer.put_bytes(challenge.mac);
  return with_header(MessageType::challenge, writer.bytes());
}

Bytes format_proof(const Mac& mac) { return with_header(MessageType::proof, mac); }

Bytes format_accepted() { return with_header(MessageType::accepted, {}); }

Bytes format_refused(const Status& reason) {
  ByteWriter writer;
  writer.put(static_cast<std::uint16_t>(reason.code()));
  writer.put_string(std::string_view(reason.message()).substr(0, kMaxReasonBytes));
  return with_header(MessageType::refused, writer.bytes());
}

Result<Hello> parse_hello(std::span<const std::byte> payload) {
  ByteReader reader(payload);
  Hello hello;
  take_array(reader, hello.nonce);
  hello.identity.role = reader.get_string(kMaxRoleBytes);
  hello.identity.group = reader.get_string(kMaxGroupBytes);
  hello.identity.from_rank = reader.get<std::int32_t>();
  hello.identity.to_rank = reader.get<std::int32_t>();
  hello.identity.index = reader.get<std::uint32_t>();
  if (!reader.complete()) return malformed("hello");
  return hello;
}

Result<Challenge> parse_challenge(std::span<const std::byte> payload) {
  ByteReader reader(payload);
  Challenge challenge;
  take_array(reader, challenge.nonce);
  take_array(reader, challenge.mac);
  if (!reader.complete()) return malformed("challenge");
  return challenge;
}

Result<Mac> parse_proof(std::span<const std::byte> payload) {
  ByteReader reader(payload);
  Mac mac{};
  take_array(reader, mac);
  if (!reader.complete()) return malformed("proof");
  return mac;
}

Result<Refusal> parse_refused(std::span<const std::byte> payload) {
  ByteReader reader(payload);
  const auto code = reader.get<std::uint16_t>();
  const std::string reason = reader.get_string(kMaxReasonBytes);
  if (!reader.complete() || code == 0 || code > static_cast<unsigned>(StatusCode::internal)) {
    return malformed("refused");
  }
  return Refusal{Status(static_cast<StatusCode>(code), printable(reason))};
}

namespace {

Mac hmac(const Secret& secret, const Bytes& bytes) {
  Mac mac{};
  unsigned size = 0;
  if (::HMAC(EVP_sha256(), secret.key().data(), static_cast<int>(secret.key().size()),
             reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(),
             reinterpret_cast<unsigned char*>(mac.data()), &size) == nullptr ||
      size != mac.size()) {
    log_error("HMAC-SHA256 failed in OpenSSL; no connection can be authenticated");
    std::abort();
  }
  return mac;
}

}  // namespace

std::string group_tag(const Secret& secret, const Nonce& connector, const std::string& group) {
  if (group.empty()) return {};
  ByteWriter writer;
  writer.put_string("lockstep group");
  writer.put_bytes(connector);
  writer.put_string(group);
  const Mac mac = hmac(secret, writer.bytes());
  return {reinterpret_cast<const char*>(mac.data()), mac.size()};
}

Mac compute_mac(const Secret& secret, Side side, const Nonce& connector, const Nonce& acceptor,
                const ConnectionIdentity& identity) {
  ByteWriter writer;
  writer.put_string("lockstep handshake");
  writer.put(kWireVersion);
  writer.put(static_cast<std::uint8_t>(side));
  writer.put_bytes(connector);
  writer.put_bytes(acceptor);
  put_identity(writer, identity);
  return hmac(secret, writer.bytes());
}

bool equal(std::span<const std::byte> a, std::span<const std::byte> b) {
  return a.size() == b.size() && ::CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace lockstep::handshake
