// The messages that ranks of a group exchange in addition to data, on the control links (control_peers() in
// transport/topology.h). Byte layout: docs/wire_format.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "base/codec.h"
#include "collectives/descriptor.h"
#include "lockstep/base/status.h"

namespace lockstep {

// The sender is alive. Sent at intervals between hosts.
struct Heartbeat {
  friend bool operator==(const Heartbeat&, const Heartbeat&) = default;
};
// The group has failed, for this reason. Passed on by every rank that did not know it.
struct Abort {
  Status reason;
  friend bool operator==(const Abort&, const Abort&) = default;
};
// How far a rank has come.
struct RankReport {
  std::int32_t rank = 0;
  std::uint32_t version = 0;            // of `waiting`
  std::uint64_t completed = 0;          // sequence number of its last completed collective
  bool left = false;                    // it has left the group after that
  std::optional<OpDescriptor> waiting;  // the collective that it waits in, if it waits long
  friend bool operator==(const RankReport&, const RankReport&) = default;
};
// Between hosts. Passed on as far as it is news.
struct ProgressReport {
  std::vector<RankReport> ranks;
  friend bool operator==(const ProgressReport&, const ProgressReport&) = default;
};
// To the first rank of the host: the sender's state in the arena has changed, and other hosts should know.
struct ProgressChanged {
  friend bool operator==(const ProgressChanged&, const ProgressChanged&) = default;
};
// Registered memory, between ranks `from` and `to` of a host; its first rank passes them on. A rank requests a region
// when it first needs it.
struct RegionRequest {
  std::int32_t from = 0;
  std::int32_t to = 0;
  std::uint32_t id = 0;
  friend bool operator==(const RegionRequest&, const RegionRequest&) = default;
};
// The region's descriptor is attached.
struct RegionGrant {
  std::int32_t from = 0;
  std::int32_t to = 0;
  std::uint32_t id = 0;
  std::uint64_t bytes = 0;
  friend bool operator==(const RegionGrant&, const RegionGrant&) = default;
};
struct RegionDropped {
  std::int32_t from = 0;
  std::int32_t to = 0;
  std::uint32_t id = 0;
  friend bool operator==(const RegionDropped&, const RegionDropped&) = default;
};
using ControlMessage =
    std::variant<Heartbeat, Abort, ProgressReport, ProgressChanged, RegionRequest, RegionGrant, RegionDropped>;

// The frame around a message: magic u32, version u16, type u16, length u32, zero u32.
inline constexpr std::size_t kControlHeaderBytes = 16;
inline constexpr std::size_t kMaxControlPayload = std::size_t{64} << 10;
// More reports than this need several messages.
inline constexpr std::size_t kMaxReports = 512;

// The whole frame. A reason too long for a frame is truncated.
Bytes format_control_message(const ControlMessage& message);

struct ControlHeader {
  std::uint16_t type = 0;
  std::uint32_t length = 0;  // of the payload that follows; at most kMaxControlPayload
};
Result<ControlHeader> parse_control_header(std::span<const std::byte> bytes);
Result<ControlMessage> parse_control_payload(std::uint16_t type, std::span<const std::byte> bytes);

}  // namespace lockstep
