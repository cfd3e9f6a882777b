#include "ddp/backends/backend_spec.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

namespace lockstep::detail {

namespace {

std::string trimmed(std::string text) {
  const auto space = [](unsigned char c) { return std::isspace(c) != 0; };
  text.erase(text.begin(), std::find_if_not(text.begin(), text.end(), space));
  text.erase(std::find_if_not(text.rbegin(), text.rend(), space).base(), text.end());
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

bool is_name(const std::string& text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '_' || c == '-' || c == '.';
  });
}

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts(1);
  for (const char c : text) {
    if (c == separator) {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

Status invalid(const std::string& text, const std::string& why) {
  return {StatusCode::invalid_argument,
          fmt::format("backend \"{}\": {}; write one name (\"gloo\") or one for each kind of device "
                      "(\"cpu:lockstep,cuda:nccl\")",
                      text, why)};
}

Result<BackendSpec::Choice> parse_choice(const std::string& text, const std::string& part) {
  const std::vector<std::string> sides = split(part, ':');
  if (sides.size() > 2) return invalid(text, fmt::format("\"{}\" has more than one colon", trimmed(part)));
  BackendSpec::Choice choice;
  choice.backend = trimmed(sides.back());
  if (!is_name(choice.backend)) {
    return invalid(text, choice.backend.empty() ? "a backend's name is missing"
                                                : fmt::format("\"{}\" is not a backend's name", choice.backend));
  }
  if (sides.size() == 2) {
    choice.device = trimmed(sides.front());
    if (!is_name(choice.device)) {
      return invalid(text, fmt::format("\"{}\" is not a kind of device", choice.device));
    }
  }
  return choice;
}

}  // namespace

std::string BackendSpec::to_string() const {
  std::string text;
  for (const Choice& choice : choices) {
    if (!text.empty()) text += ',';
    text += choice.device.empty() ? choice.backend : choice.device + ':' + choice.backend;
  }
  return text;
}

Result<BackendSpec> parse_backend_spec(const std::string& text) {
  BackendSpec spec;
  if (trimmed(text).empty()) return spec;
  for (const std::string& part : split(text, ',')) {
    auto choice = parse_choice(text, part);
    if (!choice.ok()) return choice.status();
    for (const BackendSpec::Choice& earlier : spec.choices) {
      if (earlier.device.empty() || choice->device.empty()) {
        return invalid(text, "with several backends, each needs a kind of device");
      }
      if (earlier.device == choice->device) return invalid(text, fmt::format("\"{}\" is given twice", earlier.device));
    }
    spec.choices.push_back(*std::move(choice));
  }
  return spec;
}

}  // namespace lockstep::detail
