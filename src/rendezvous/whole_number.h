// Numbers that users write: environment variables and URL queries.
#pragma once

#include <fmt/format.h>

#include <charconv>
#include <string_view>

#include "lockstep/base/status.h"

namespace lockstep {

// The largest world that is accepted; larger numbers are considered mistakes.
inline constexpr int kMaxWorldSize = 65536;

// Decimal digits only, `minimum` to `maximum`. The error names `name`, the text and what is expected.
inline Result<int> parse_whole_number(std::string_view name, std::string_view text, int minimum, int maximum) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  if (!whole || value < minimum || value > maximum) {
    return Status(StatusCode::invalid_argument,
                  fmt::format("{} is '{}'; expected a whole number from {} to {}", name, text, minimum, maximum));
  }
  return value;
}

}  // namespace lockstep
