#include "communicator/message/message_header.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/codec.h"

namespace lockstep {
namespace {

constexpr std::uint32_t kMessageMagic = 0x504d'4b4c;  // "LKMP"
constexpr std::uint16_t kMessageVersion = 1;

}  // namespace

std::array<std::byte, kMessageHeaderBytes> format_message_header(const MessageHeader& header) {
  ByteWriter writer;
  writer.put(kMessageMagic);
  writer.put(kMessageVersion);
  writer.put(static_cast<std::uint16_t>(header.dtype));
  writer.put(header.tag);
  writer.put(std::uint32_t{0});
  writer.put(header.bytes);
  writer.put(std::uint64_t{0});
  std::array<std::byte, kMessageHeaderBytes> bytes{};
  std::copy(writer.bytes().begin(), writer.bytes().end(), bytes.begin());
  return bytes;
}

Result<MessageHeader> parse_message_header(std::span<const std::byte> bytes) {
  ByteReader reader(bytes);
  const auto magic = reader.get<std::uint32_t>();
  const auto version = reader.get<std::uint16_t>();
  const auto dtype = reader.get<std::uint16_t>();
  MessageHeader header{.tag = reader.get<std::int32_t>(), .dtype = static_cast<DType>(dtype)};
  reader.get<std::uint32_t>();
  header.bytes = reader.get<std::uint64_t>();
  reader.get<std::uint64_t>();
  if (!reader.complete() || magic != kMessageMagic || dtype > static_cast<std::uint16_t>(DType::i64)) {
    return Status(StatusCode::protocol_error, "the peer sent bytes that are not a message header");
  }
  if (version != kMessageVersion) {
    return Status(StatusCode::protocol_error,
                  fmt::format("a peer uses version {} of the message protocol, this process version {}; run the same "
                              "version of Lockstep on all ranks",
                              version, kMessageVersion));
  }
  return header;
}

}  // namespace lockstep
