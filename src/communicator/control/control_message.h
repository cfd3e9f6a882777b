// What ranks of a group tell each other beside the data: on the control connection of each pair.
// Byte layout: docs/wire_format.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <variant>

#include "base/codec.h"
#include "collectives/descriptor.h"
#include "lockstep/base/status.h"

namespace lockstep {

// "I am alive, and this is how far I am." Sent at intervals, and when an operation waits long.
struct Heartbeat {
  std::uint64_t completed = 0;          // sequence number of the last completed collective
  std::optional<OpDescriptor> waiting;  // the collective that this rank waits in, if it waits long
  friend bool operator==(const Heartbeat&, const Heartbeat&) = default;
};
// "The group is dead, and this is why."
struct Abort {
  Status reason;
  friend bool operator==(const Abort&, const Abort&) = default;
};
// "I leave. I took part in all collectives up to this one."
struct Goodbye {
  std::uint64_t completed = 0;
  friend bool operator==(const Goodbye&, const Goodbye&) = default;
};
// "You may map this registered memory"; a descriptor travels along. Only within a host.
struct SegmentAdded {
  std::uint32_t id = 0;
  std::uint64_t bytes = 0;
  friend bool operator==(const SegmentAdded&, const SegmentAdded&) = default;
};
struct SegmentDropped {
  std::uint32_t id = 0;
  friend bool operator==(const SegmentDropped&, const SegmentDropped&) = default;
};
using ControlMessage = std::variant<Heartbeat, Abort, Goodbye, SegmentAdded, SegmentDropped>;

// The frame around a message: magic u32, version u16, type u16, length u32, zero u32.
inline constexpr std::size_t kControlHeaderBytes = 16;
inline constexpr std::size_t kMaxControlPayload = std::size_t{64} << 10;

// The whole frame. A reason too long for a frame is cut.
Bytes format_control_message(const ControlMessage& message);

struct ControlHeader {
  std::uint16_t type = 0;
  std::uint32_t length = 0;  // of the payload that follows; at most kMaxControlPayload
};
Result<ControlHeader> parse_control_header(std::span<const std::byte> bytes);
Result<ControlMessage> parse_control_payload(std::uint16_t type, std::span<const std::byte> bytes);

}  // namespace lockstep
