// Text as a string of JSON.
#pragma once

#include <string>
#include <string_view>

namespace lockstep {

// With its quotation marks: "a \"b\"". Always valid JSON: bytes that are not UTF-8 become U+FFFD. Pure.
std::string json_string(std::string_view text);

}  // namespace lockstep
