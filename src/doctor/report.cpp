// How a diagnosis is printed.
#include <fmt/format.h>

#include <algorithm>

#include "doctor/doctor.h"
#include "doctor/json.h"
#include "doctor/network/judge_links.h"

namespace lockstep::doctor {
namespace {

std::string row(const Finding& finding, bool colour) {
  static constexpr const char* kColours[] = {"\x1b[32m", "\x1b[33m", "\x1b[31m"};
  const auto index = static_cast<std::size_t>(finding.level);
  std::string text = fmt::format("  {}{:<6}{}  {}: {}\n", colour ? kColours[index] : "", to_string(finding.level),
                                 colour ? "\x1b[0m" : "", finding.check, finding.value);
  if (!finding.advice.empty()) text += fmt::format("          -> {}\n", finding.advice);
  return text;
}

Level worst_of(const Diagnosis& diagnosis) {
  Level level = worst(diagnosis.network);
  for (const auto& [index, report] : diagnosis.reports) level = std::max(level, worst(report.findings));
  return level;
}

}  // namespace

int exit_code_of(const Diagnosis& diagnosis) { return static_cast<int>(worst_of(diagnosis)); }

std::string to_text(const Diagnosis& diagnosis, bool colour) {
  std::string text;
  for (const auto& [index, report] : diagnosis.reports) {
    const bool here = index == diagnosis.self;
    if (!here && worst(report.findings) == Level::green) continue;
    text += here ? fmt::format("this host ({})\n", report.host)
                 : fmt::format("host {} ({}), without what is green\n",
                               to_string(diagnosis.hosts[static_cast<std::size_t>(index)]), report.host);
    for (const Finding& finding : report.findings) {
      if (here || finding.level != Level::green) text += row(finding, colour);
    }
  }
  if (!diagnosis.network.empty()) {
    text += "network\n";
    for (const Finding& finding : diagnosis.network) text += row(finding, colour);
    if (diagnosis.reports.size() > 1) text += link_table(diagnosis.hosts, diagnosis.reports);
  }
  const Level level = worst_of(diagnosis);
  text += level == Level::green    ? "green: nothing to do\n"
          : level == Level::yellow ? "yellow: the job runs, but see above\n"
                                   : "red: the job cannot run, see above\n";
  return text;
}

std::string to_json_text(const Diagnosis& diagnosis) {
  nlohmann::json hosts = nlohmann::json::array();
  for (std::size_t i = 0; i < std::max<std::size_t>(1, diagnosis.hosts.size()); ++i) {
    const auto report = diagnosis.reports.find(static_cast<int>(i));
    nlohmann::json host =
        report == diagnosis.reports.end() ? nlohmann::json({{"index", i}, {"came", false}}) : to_json(report->second);
    if (!diagnosis.hosts.empty()) host["address"] = to_string(diagnosis.hosts[i]);
    hosts.push_back(std::move(host));
  }
  nlohmann::json network = nlohmann::json::array();
  for (const Finding& finding : diagnosis.network) network.push_back(to_json(finding));
  const nlohmann::json document = {{"level", to_string(worst_of(diagnosis))},
                                   {"exit_code", exit_code_of(diagnosis)},
                                   {"this_host", diagnosis.self},
                                   {"hosts", hosts},
                                   {"network", network}};
  return document.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace lockstep::doctor
