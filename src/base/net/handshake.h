// The messages of the handshake (base/net/auth.h) as bytes: docs/wire_format.md, "Handshake".
// Pure functions; parsers accept any bytes, check lengths before they allocate, and return
// protocol_error for anything that no correct peer of this version sends.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/codec.h"
#include "base/net/auth.h"
#include "lockstep/base/secret.h"
#include "lockstep/base/status.h"

namespace lockstep::handshake {

// The version of the handshake and of everything that follows on the connection.
inline constexpr std::uint16_t kWireVersion = 3;
inline constexpr std::uint32_t kMagic = 0x504B534C;  // "LSKP"
inline constexpr std::size_t kHeaderBytes = 12;
inline constexpr std::size_t kMaxPayloadBytes = 1024;
inline constexpr std::size_t kMaxReasonBytes = 900;
inline constexpr std::size_t kNonceBytes = 32;
inline constexpr std::size_t kMacBytes = 32;

using Nonce = std::array<std::byte, kNonceBytes>;
using Mac = std::array<std::byte, kMacBytes>;

enum class MessageType : std::uint16_t { hello = 1, challenge = 2, proof = 3, accepted = 4, refused = 5 };

struct Header {
  std::uint16_t version = kWireVersion;
  MessageType type = MessageType::hello;
  std::uint32_t payload_bytes = 0;
};
// Needs exactly kHeaderBytes. Does not check version and type: see check_header.
Result<Header> parse_header(std::span<const std::byte> bytes);
// Refuses another version (naming both) and any type but `expected`.
Status check_header(const Header& header, MessageType expected);

struct Hello {
  Nonce nonce{};
  ConnectionIdentity identity;  // with the group_tag() in place of the group
};
struct Challenge {
  Nonce nonce{};
  Mac mac{};
};

// Whole messages, header included.
Bytes format_hello(const Hello& hello);
Bytes format_challenge(const Challenge& challenge);
Bytes format_proof(const Mac& mac);
Bytes format_accepted();
Bytes format_refused(const Status& reason);

// Payloads, without the header.
Result<Hello> parse_hello(std::span<const std::byte> payload);
Result<Challenge> parse_challenge(std::span<const std::byte> payload);
Result<Mac> parse_proof(std::span<const std::byte> payload);
// Why the acceptor refuses: never ok; the text has only printable characters.
struct Refusal {
  Status status;
};
Result<Refusal> parse_refused(std::span<const std::byte> payload);

// Which end proves: each has a label of its own, so that no answer can be reflected.
enum class Side : std::uint8_t { connector = 1, acceptor = 2 };
Mac compute_mac(const Secret& secret, Side side, const Nonce& connector, const Nonce& acceptor,
                const ConnectionIdentity& identity);
// What the hello carries instead of the group: without the secret, it does not tell which group it is, nor whether two
// connections belong to the same one. Empty if the group is.
std::string group_tag(const Secret& secret, const Nonce& connector, const std::string& group);
// In constant time.
bool equal(std::span<const std::byte> a, std::span<const std::byte> b);

}  // namespace lockstep::handshake
