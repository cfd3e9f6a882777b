// `lockstep doctor --json` as a process, and what it found.
#pragma once

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "launch/launcher.h"
#include "support/process_set.h"

namespace lockstep::testing {

// The first row of `rows` whose check contains `check` and whose level is not green; null if there is none.
inline nlohmann::json trouble_with(const nlohmann::json& rows, const std::string& check) {
  for (const auto& row : rows) {
    if (row.at("level") != "green" && row.at("check").get<std::string>().find(check) != std::string::npos) return row;
  }
  return nullptr;
}

// The row of this name; null if there is none.
inline nlohmann::json row_of(const nlohmann::json& rows, const std::string& check) {
  for (const auto& row : rows) {
    if (row.at("check") == check) return row;
  }
  return nullptr;
}

inline nlohmann::json link_of(const nlohmann::json& document, int from, int to) {
  for (const auto& link : document.at("hosts").at(static_cast<std::size_t>(from)).at("links")) {
    if (link.at("to") == to) return link;
  }
  return nullptr;
}

}  // namespace lockstep::testing
