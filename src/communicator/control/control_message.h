// The messages that ranks of a group exchange in addition to data, on the control connection of each pair.
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

// The sender is alive. Sent at intervals, and when an operation waits long.
struct Heartbeat {
  std::uint64_t completed = 0;          // sequence number of the last completed collective
  std::optional<OpDescriptor> waiting;  // the collective that this rank waits in, if it waits long
  friend bool operator==(const Heartbeat&, const Heartbeat&) = default;
};
// The group has failed, for this reason.
struct Abort {
  Status reason;
  friend bool operator==(const Abort&, const Abort&) = default;
};
// The sender leaves the group. It took part in all collectives up to this one.
struct Goodbye {
  std::uint64_t completed = 0;
  friend bool operator==(const Goodbye&, const Goodbye&) = default;
};
// The sender has registered memory, which the receiver may map; its descriptor is attached. Only within a host.
struct RegionAdded {
  std::uint32_t id = 0;
  std::uint64_t bytes = 0;
  friend bool operator==(const RegionAdded&, const RegionAdded&) = default;
};
struct RegionDropped {
  std::uint32_t id = 0;
  friend bool operator==(const RegionDropped&, const RegionDropped&) = default;
};
using ControlMessage = std::variant<Heartbeat, Abort, Goodbye, RegionAdded, RegionDropped>;

// The frame around a message: magic u32, version u16, type u16, length u32, zero u32.
inline constexpr std::size_t kControlHeaderBytes = 16;
inline constexpr std::size_t kMaxControlPayload = std::size_t{64} << 10;

// The whole frame. A reason too long for a frame is truncated.
Bytes format_control_message(const ControlMessage& message);

struct ControlHeader {
  std::uint16_t type = 0;
  std::uint32_t length = 0;  // of the payload that follows; at most kMaxControlPayload
};
Result<ControlHeader> parse_control_header(std::span<const std::byte> bytes);
Result<ControlMessage> parse_control_payload(std::uint16_t type, std::span<const std::byte> bytes);

}  // namespace lockstep
