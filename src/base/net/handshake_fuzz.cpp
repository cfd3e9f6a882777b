// The handshake's parsers, and the acceptor's state machine, fed in two halves.
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/net/auth.h"
#include "base/net/handshake.h"

namespace lockstep {
namespace {

void require(bool condition) {
  if (!condition) __builtin_trap();
}

void feed(AcceptorHandshake& acceptor, std::span<const std::byte> bytes) {
  while (!bytes.empty() && acceptor.wanted() > 0) {
    const auto next = bytes.first(std::min(bytes.size(), acceptor.wanted()));
    acceptor.feed(next);
    bytes = bytes.subspan(next.size());
  }
}

}  // namespace
}  // namespace lockstep

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace lockstep;
  const auto bytes = std::as_bytes(std::span(data, size));
  if (const auto hello = handshake::parse_hello(bytes); hello.ok()) {
    const Bytes again = handshake::format_hello(*hello);
    require(handshake::equal(bytes, std::span(again).subspan(handshake::kHeaderBytes)));
  }
  if (const auto refused = handshake::parse_refused(bytes); refused.ok()) require(!refused->status.ok());
  [[maybe_unused]] const auto challenge = handshake::parse_challenge(bytes);
  [[maybe_unused]] const auto proof = handshake::parse_proof(bytes);

  static const Secret secret("fuzz");
  static const IdentityCheck check;
  static const std::string group;
  AcceptorHandshake acceptor(secret, group, check);
  feed(acceptor, bytes.first(size / 2));
  feed(acceptor, bytes.subspan(size / 2));
  // No input proves the secret by chance.
  require(acceptor.state() != AcceptorHandshake::State::accepted);
  return 0;
}
