// Numbers and flags as text, in the metadata of safetensors files: human-readable, and read back bit for bit.
//
// A finite number is decimal and as short as possible; others, whose sign and payload decimal text does not have, are
// their 64 bits: "0x7ff8000000000000". Pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep::checkpoint {

std::string format_field(double value);
std::string format_field(std::int64_t value);
std::string format_field(bool value);  // "true", "false"

// False, and `value` is unchanged, unless `text` is one that format_field() could have returned for some value.
bool parse_field(std::string_view text, double& value);
bool parse_field(std::string_view text, std::int64_t& value);
bool parse_field(std::string_view text, bool& value);

}  // namespace lockstep::checkpoint
