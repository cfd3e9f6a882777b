// The JSON header of a safetensors file. Private to safetensors.cpp.
#pragma once

#include <string_view>

#include "checkpoint/safetensors.h"

namespace lockstep::checkpoint {

// Entries in the order of the header; their offsets are not checked, and data_bytes is 0.
// protocol_error: not JSON, other fields or types than the format has, a name that appears twice.
Result<SafetensorsHead> parse_safetensors_header(std::string_view json);

}  // namespace lockstep::checkpoint
