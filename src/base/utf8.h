// Text from programs and other processes, which may be any bytes.
#pragma once

#include <cstddef>
#include <string_view>

namespace lockstep {

// How many bytes the character at the beginning of `text` has in UTF-8; 0 if it is none: not UTF-8, or the text is
// empty. Pure.
inline std::size_t utf8_character(std::string_view text) {
  if (text.empty()) return 0;
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) return 1;
  const std::size_t size = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4 || size > text.size()) return 0;
  for (std::size_t i = 1; i < size; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  // Overlong forms, surrogates, and what is above U+10FFFF.
  const unsigned char second = byte(1);
  if ((first == 0xE0 && second < 0xA0) || (first == 0xED && second > 0x9F)) return 0;
  if ((first == 0xF0 && second < 0x90) || (first == 0xF4 && second > 0x8F)) return 0;
  return size;
}

// A control character: ASCII's, or U+0080 to U+009F. `character`: one character in UTF-8.
inline bool is_control(std::string_view character) {
  const auto first = static_cast<unsigned char>(character[0]);
  if (first == 0xC2) return static_cast<unsigned char>(character[1]) < 0xA0;
  return first < 0x20 || first == 0x7F;
}

}  // namespace lockstep
