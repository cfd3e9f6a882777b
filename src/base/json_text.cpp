#include "base/json_text.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/utf8.h"

namespace lockstep {

std::string json_string(std::string_view text) {
  std::string result = "\"";
  while (!text.empty()) {
    const std::size_t size = utf8_character(text);
    const std::string_view character = text.substr(0, std::max<std::size_t>(size, 1));
    if (size == 0) {
      result += "\xEF\xBF\xBD";
    } else if (character == "\"" || character == "\\") {
      result += '\\';
      result += character;
    } else if (character == "\n") {
      result += "\\n";
    } else if (character == "\t") {
      result += "\\t";
    } else if (is_control(character) && size == 1) {
      result += fmt::format("\\u{:04x}", static_cast<unsigned>(character[0]));
    } else {
      result += character;
    }
    text.remove_prefix(character.size());
  }
  return result + '"';
}

}  // namespace lockstep
