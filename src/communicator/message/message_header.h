// The header before each point-to-point message. Byte layout: docs/wire_format.md.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "lockstep/base/status.h"
#include "lockstep/collectives/types.h"

namespace lockstep {

inline constexpr std::size_t kMessageHeaderBytes = 32;

struct MessageHeader {
  std::int32_t tag = 0;
  DType dtype = DType::u8;
  std::uint64_t bytes = 0;  // of the payload that follows
  friend bool operator==(const MessageHeader&, const MessageHeader&) = default;
};

std::array<std::byte, kMessageHeaderBytes> format_message_header(const MessageHeader& header);
Result<MessageHeader> parse_message_header(std::span<const std::byte> bytes);

}  // namespace lockstep
