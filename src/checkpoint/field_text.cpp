#include "checkpoint/field_text.h"

#include <fmt/format.h>

#include <bit>
#include <charconv>
#include <cmath>

namespace lockstep::checkpoint {
namespace {

template <typename Number, typename... Format>
bool parse_whole(std::string_view text, Number& number, Format... format) {
  const char* const end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, number, format...);
  return parsed.ec == std::errc() && parsed.ptr == end;
}

// One spelling for each value: what was read must be written in the same way.
template <typename Number>
bool accept(std::string_view text, Number number, Number& value) {
  if (format_field(number) != text) return false;
  value = number;
  return true;
}

}  // namespace

std::string format_field(double value) {
  if (std::isfinite(value)) return fmt::format("{}", value);
  return fmt::format("0x{:016x}", std::bit_cast<std::uint64_t>(value));
}
std::string format_field(std::int64_t value) { return fmt::format("{}", value); }
std::string format_field(bool value) { return value ? "true" : "false"; }

bool parse_field(std::string_view text, double& value) {
  if (text.starts_with("0x")) {
    std::uint64_t bits = 0;
    return parse_whole(text.substr(2), bits, 16) && accept(text, std::bit_cast<double>(bits), value);
  }
  double number = 0;
  return parse_whole(text, number) && accept(text, number, value);
}
bool parse_field(std::string_view text, std::int64_t& value) {
  std::int64_t number = 0;
  return parse_whole(text, number) && accept(text, number, value);
}
bool parse_field(std::string_view text, bool& value) {
  return text == "true" ? accept(text, true, value) : accept(text, false, value);
}

}  // namespace lockstep::checkpoint
