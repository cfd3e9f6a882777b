// The header with which every operation starts on every data connection that it uses; layout in
// docs/wire_format.md. Pure functions; safe from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "collectives/descriptor.h"
#include "lockstep/base/status.h"
#include "transport/stream/stream_flow.h"

namespace lockstep {

inline constexpr std::uint32_t kStreamMagic = 0x44534b4c;  // "LKSD" on the wire
inline constexpr std::uint16_t kStreamVersion = 1;

// Which algorithm exchanges bytes: ranks that run different ones would misread each other.
enum class StreamAlgorithm : std::uint8_t { ring = 1, direct, pair, small, tree, chain, exchange };
std::string_view to_string(StreamAlgorithm algorithm);  // "ring"

struct StreamHeader {
  StreamAlgorithm algorithm = StreamAlgorithm::ring;
  // Which chunk of the buffer, of how many, if several local ranks share the work; 0 of 0: all.
  std::uint16_t chunk = 0;
  std::uint16_t chunks = 0;
  OpDescriptor descriptor;

  friend bool operator==(const StreamHeader&, const StreamHeader&) = default;
};

StreamHeaderBytes format_stream_header(const StreamHeader& header);

// protocol_error for anything that no rank of this version sends: another length, magic or version,
// unknown values, reserved bytes that are not zero.
Result<StreamHeader> parse_stream_header(std::span<const std::byte> bytes);

// A StreamHeaderCheck: protocol_error if `theirs` is not a header, else the mismatch that names
// both sides.
Status explain_header_difference(int my_rank, const StreamHeaderBytes& mine, int their_rank,
                                 const StreamHeaderBytes& theirs);

}  // namespace lockstep
