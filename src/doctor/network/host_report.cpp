#include "doctor/network/host_report.h"

#include <fmt/format.h>

#include <algorithm>

#include "doctor/json.h"

namespace lockstep::doctor {

// What programs of this host have printed is in it, and may not be UTF-8.
std::string to_json_text(const HostReport& report) {
  return to_json(report).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

Result<HostReport> parse_host_report(const std::string& text) {
  const auto damaged = [] { return Status(StatusCode::protocol_error, "a host's report is not one of this version"); };
  const auto json = nlohmann::json::parse(text, nullptr, false);
  if (!json.is_object()) return damaged();
  try {
    HostReport report{.index = json.at("index").get<int>(), .host = json.at("host").get<std::string>()};
    for (const auto& row : json.at("checks")) {
      const int level = row.at("level_number").get<int>();
      if (level < 0 || level > 2) return damaged();
      report.findings.push_back({static_cast<Level>(level), row.at("check").get<std::string>(),
                                 row.at("value").get<std::string>(), row.at("advice").get<std::string>()});
    }
    const auto reach_of = [](const nlohmann::json& name) {
      for (int i = 0; i <= static_cast<int>(Reach::unknown); ++i) {
        if (name.get<std::string>() == to_string(static_cast<Reach>(i))) return static_cast<Reach>(i);
      }
      return Reach::unknown;
    };
    const auto number = [](const nlohmann::json& row, const char* name) {
      return row.at(name).is_null() ? -1 : row.at(name).get<double>();
    };
    for (const auto& row : json.at("links")) {
      report.links.push_back({.from = row.at("from").get<int>(),
                              .to = row.at("to").get<int>(),
                              .endpoint = reach_of(row.at("endpoint")),
                              .ranks = reach_of(row.at("ranks")),
                              .ranks_address = row.at("ranks_address").get<std::string>(),
                              .latency_seconds = number(row, "latency_seconds"),
                              .bytes_per_second = number(row, "bytes_per_second"),
                              .clock_offset_seconds = row.at("clock_offset_seconds").get<double>(),
                              .clock_error_seconds = number(row, "clock_error_seconds")});
    }
    // Only what it measured itself: the other end is checked where it is used.
    const auto own = [&](const LinkReport& link) { return link.from == report.index; };
    if (!std::all_of(report.links.begin(), report.links.end(), own)) return damaged();
    return report;
  } catch (const nlohmann::json::exception&) {  // a member is missing or of another type
    return damaged();
  }
}

}  // namespace lockstep::doctor
