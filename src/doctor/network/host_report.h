// What each host publishes for the others: where it can be reached, and what it found.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "doctor/finding.h"
#include "doctor/network/reach.h"
#include "lockstep/base/status.h"

namespace lockstep::doctor {

// From one host to another.
struct LinkReport {
  int from = 0;
  int to = 0;
  // At the address in --hosts, where launchers meet, and at a port that the kernel chose, as ranks use them.
  Reach endpoint = Reach::unknown;
  Reach ranks = Reach::unknown;
  std::string ranks_address = {};  // "10.0.0.2:41234"; empty: not known
  // Measured if `ranks` answers; negative: not measured.
  double latency_seconds = -1;      // half of the fastest round trip
  double bytes_per_second = -1;     // encrypted as collectives are
  double clock_offset_seconds = 0;  // of the other host's clock, beyond this one's
  double clock_error_seconds = -1;  // the offset is at most this wrong
};

struct HostReport {
  int index = 0;          // in --hosts
  std::string host = {};  // its name
  std::vector<Finding> findings = {};
  std::vector<LinkReport> links = {};  // from this host to each other
};

std::string to_json_text(const HostReport& report);
// protocol_error if the text is none of to_json_text().
Result<HostReport> parse_host_report(const std::string& text);

}  // namespace lockstep::doctor
