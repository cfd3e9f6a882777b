// The doctor's findings as JSON: for --json, and between hosts.
#pragma once

#include <nlohmann/json.hpp>

#include "doctor/finding.h"
#include "doctor/network/host_report.h"

namespace lockstep::doctor {

nlohmann::json to_json(const Finding& finding);
nlohmann::json to_json(const LinkReport& link);
nlohmann::json to_json(const HostReport& report);

}  // namespace lockstep::doctor
