// What `lockstep doctor` finds: one row for each check.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::doctor {

enum class Level : std::uint8_t {
  green,
  yellow,  // the job runs, but slowly, or not under all circumstances
  red,     // the job cannot run
};
// "green", ...; never null.
const char* to_string(Level level);

struct Finding {
  Level level = Level::green;
  std::string check;        // "open files"
  std::string value;        // what was found, human-readable
  std::string advice = {};  // what to do; empty if green
};

inline Finding green(std::string check, std::string value) {
  return {.level = Level::green, .check = std::move(check), .value = std::move(value)};
}
inline Finding yellow(std::string check, std::string value, std::string advice) {
  return {Level::yellow, std::move(check), std::move(value), std::move(advice)};
}
inline Finding red(std::string check, std::string value, std::string advice) {
  return {Level::red, std::move(check), std::move(value), std::move(advice)};
}

// The worst of them; green if there is none.
Level worst(const std::vector<Finding>& findings);

}  // namespace lockstep::doctor
