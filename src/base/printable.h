// Makes text from another process safe for logs and messages.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>

namespace lockstep {

// Bytes outside printable ASCII become '?'.
inline std::string printable(std::string_view text) {
  std::string result(text);
  std::replace_if(
      result.begin(), result.end(), [](unsigned char c) { return c < 0x20 || c >= 0x7F; }, '?');
  return result;
}

}  // namespace lockstep
