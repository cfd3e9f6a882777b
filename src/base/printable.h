// Makes text from another process safe for logs and messages.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>

#include "base/utf8.h"

namespace lockstep {

// Bytes outside printable ASCII become '?'.
inline std::string printable(std::string_view text) {
  std::string result(text);
  std::replace_if(
      result.begin(), result.end(), [](unsigned char c) { return c < 0x20 || c >= 0x7F; }, '?');
  return result;
}

// One line of UTF-8 for a terminal: line breaks and tabs become spaces; other control characters, and bytes that are
// not UTF-8, become '?'.
inline std::string printable_line(std::string_view text) {
  std::string result;
  while (!text.empty()) {
    const std::size_t size = utf8_character(text);
    const std::string_view character = text.substr(0, std::max<std::size_t>(size, 1));
    if (character == "\n" || character == "\t") {
      result += ' ';
    } else if (size == 0 || is_control(character)) {
      result += '?';
    } else {
      result += character;
    }
    text.remove_prefix(character.size());
  }
  return result;
}

}  // namespace lockstep
