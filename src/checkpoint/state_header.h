// What precedes the tensors when a process sends the state of training to another one: numbers, names, types and
// shapes. The bytes of the tensors follow, as in the data of safetensors files. docs/wire_format.md has the layout.
//
// Pure functions over bytes.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "base/codec.h"
#include "checkpoint/manifest.h"
#include "checkpoint/safetensors.h"
#include "lockstep/base/status.h"

namespace lockstep::checkpoint {

inline constexpr std::size_t kMaxStateHeader = std::size_t{1} << 28;

// Heads are those of safetensors files. An optimizer or values that do not exist have none.
struct StateHeads {
  std::string model;
  std::optional<std::string> optimizer;
  std::optional<std::string> values;
};

struct StateHeader {
  std::int64_t progress = 0;  // commits
  Manifest manifest;          // without files
  SafetensorsHead model;
  std::optional<SafetensorsHead> optimizer;
  std::optional<SafetensorsHead> values;
};

// invalid_argument: more than kMaxStateHeader bytes, or the manifest cannot be formatted.
Result<Bytes> format_state_header(std::int64_t progress, const Manifest& manifest, const StateHeads& heads);
// protocol_error, with the reason: not a header, of another version, or a part of it is malformed. Allocates no more
// than in proportion to `bytes`.
Result<StateHeader> parse_state_header(std::span<const std::byte> bytes);

}  // namespace lockstep::checkpoint
