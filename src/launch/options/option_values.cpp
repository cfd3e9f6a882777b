#include "launch/options/option_values.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdlib>

#include "rendezvous/whole_number.h"

namespace lockstep::launch {
namespace {

Status wrong(const std::string& source, const std::string& text, const char* expected) {
  return Status(StatusCode::invalid_argument, fmt::format("{} is '{}'; expected {}", source, text, expected));
}

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::size_t start = 0;
  for (std::size_t end = text.find(separator); end != std::string::npos; end = text.find(separator, start)) {
    parts.push_back(text.substr(start, end - start));
    start = end + 1;
  }
  parts.push_back(text.substr(start));
  return parts;
}

}  // namespace

Result<bool> parse_flag(const std::string& source, const std::string& text) {
  if (text == "1" || text == "true" || text == "True") return true;
  if (text == "0" || text == "false" || text == "False") return false;
  return wrong(source, text, "0 or 1");
}

Result<std::pair<int, int>> parse_node_range(const std::string& source, const std::string& text) {
  const auto parts = split(text, ':');
  if (parts.size() > 2) return wrong(source, text, "a number of nodes, or MIN:MAX");
  std::pair<int, int> range;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const auto number = parse_whole_number(source, parts[i], 1, kMaxWorldSize);
    if (!number.ok()) return wrong(source, text, "a number of nodes from 1, or MIN:MAX");
    (i == 0 ? range.first : range.second) = *number;
  }
  if (parts.size() == 1) range.second = range.first;
  if (range.first > range.second) return wrong(source, text, "MIN:MAX with MIN at most MAX");
  return range;
}

Result<std::chrono::milliseconds> parse_seconds(const std::string& source, const std::string& text) {
  char* end = nullptr;
  const double seconds = std::strtod(text.c_str(), &end);
  const bool whole = !text.empty() && end == text.c_str() + text.size();
  if (!whole || !std::isfinite(seconds) || seconds < 0 || seconds > 1e9)
    return wrong(source, text, "a number of seconds, as 30 or 0.5");
  return std::chrono::milliseconds(static_cast<long long>(seconds * 1000));
}

Result<StreamChoice> parse_streams(const std::string& source, const std::string& text) {
  constexpr const char* kExpected = "0 (none), 1 (stdout), 2 (stderr), 3 (both), or one for each local rank as 0:1,1:2";
  StreamChoice choice;
  if (text.find(':') == std::string::npos) {
    const auto all = parse_whole_number(source, text, 0, 3);
    if (!all.ok()) return wrong(source, text, kExpected);
    choice.all = *all;
    return choice;
  }
  for (const auto& item : split(text, ',')) {
    const auto parts = split(item, ':');
    if (parts.size() != 2) return wrong(source, text, kExpected);
    const auto rank = parse_whole_number(source, parts[0], 0, kMaxWorldSize);
    const auto streams = parse_whole_number(source, parts[1], 0, 3);
    if (!rank.ok() || !streams.ok()) return wrong(source, text, kExpected);
    choice.by_local_rank[*rank] = *streams;
  }
  return choice;
}

Result<std::vector<int>> parse_ranks(const std::string& source, const std::string& text) {
  std::vector<int> ranks;
  if (text.empty()) return ranks;
  for (const auto& item : split(text, ',')) {
    const auto rank = parse_whole_number(source, item, 0, kMaxWorldSize);
    if (!rank.ok()) return wrong(source, text, "local ranks with commas between them, as 0,2");
    ranks.push_back(*rank);
  }
  return ranks;
}

Result<RendezvousConf> parse_rendezvous_conf(const std::string& source, const std::string& text) {
  RendezvousConf conf;
  if (text.empty()) return conf;
  for (const auto& item : split(text, ',')) {
    const auto parts = split(item, '=');
    if (parts.size() != 2) return wrong(source, text, "key=value pairs with commas between them");
    const bool is_start = parts[0] == "timeout" || parts[0] == "join_timeout";
    if (!is_start && parts[0] != "last_call_timeout") continue;
    const auto seconds = parse_seconds(source, parts[1]);
    if (!seconds.ok()) return seconds.status();
    (is_start ? conf.start_timeout : conf.last_call_timeout) = *seconds;
  }
  return conf;
}

}  // namespace lockstep::launch
