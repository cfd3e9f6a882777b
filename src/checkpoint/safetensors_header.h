// The JSON header of a safetensors file. Private to safetensors.cpp.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/safetensors.h"

namespace lockstep::checkpoint {

// One tensor as described in the header, not checked against the data.
struct HeaderEntry {
  TensorInfo info;
  std::uint64_t begin = 0;  // into the data
  std::uint64_t end = 0;
};

struct SafetensorsHeader {
  std::vector<HeaderEntry> entries;
  Metadata metadata;
};

// protocol_error: not JSON, other fields or types than the format has, a name that appears twice.
Result<SafetensorsHeader> parse_safetensors_header(std::string_view json);

}  // namespace lockstep::checkpoint
