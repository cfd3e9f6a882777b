#include "doctor/json.h"

namespace lockstep::doctor {
namespace {

// null if it was not measured.
nlohmann::json measured(double value) { return value < 0 ? nlohmann::json() : nlohmann::json(value); }

}  // namespace

nlohmann::json to_json(const Finding& finding) {
  return {{"level", to_string(finding.level)},
          {"level_number", static_cast<int>(finding.level)},
          {"check", finding.check},
          {"value", finding.value},
          {"advice", finding.advice}};
}

nlohmann::json to_json(const LinkReport& link) {
  return {{"from", link.from},
          {"to", link.to},
          {"endpoint", to_string(link.endpoint)},
          {"ranks", to_string(link.ranks)},
          {"ranks_address", link.ranks_address},
          {"latency_seconds", measured(link.latency_seconds)},
          {"bytes_per_second", measured(link.bytes_per_second)},
          {"clock_offset_seconds", link.clock_offset_seconds},
          {"clock_error_seconds", measured(link.clock_error_seconds)}};
}

nlohmann::json to_json(const HostReport& report) {
  nlohmann::json checks = nlohmann::json::array();
  for (const Finding& finding : report.findings) checks.push_back(to_json(finding));
  nlohmann::json links = nlohmann::json::array();
  for (const LinkReport& link : report.links) links.push_back(to_json(link));
  return {{"index", report.index}, {"host", report.host}, {"checks", checks}, {"links", links}};
}

}  // namespace lockstep::doctor
