// `lockstep doctor`: what would slow down or stop a job on these hosts, before it starts.
#pragma once

#include <chrono>
#include <map>
#include <string>
#include <vector>

#include "base/net/socket.h"
#include "doctor/finding.h"
#include "doctor/network/host_report.h"

namespace lockstep::doctor {

struct DoctorOptions {
  std::vector<HostPort> hosts = {};  // fewer than two: this host alone
  int ranks_per_host = 1;
  std::chrono::milliseconds timeout{30'000};  // for hosts that have not come
};

struct Diagnosis {
  int self = 0;                            // index of this host
  std::vector<HostPort> hosts = {};        // as in the options
  std::map<int, HostReport> reports = {};  // of the hosts that came, by index; this one is always there
  std::vector<Finding> network = {};       // about the hosts together; empty for one host
};

// Call before other threads are started. On several hosts, blocks as HostExchange does.
Diagnosis examine(const DoctorOptions& options);

// 0 green, 1 yellow, 2 red.
int exit_code_of(const Diagnosis& diagnosis);
// `colour`: with terminal colours.
std::string to_text(const Diagnosis& diagnosis, bool colour);
std::string to_json_text(const Diagnosis& diagnosis);

}  // namespace lockstep::doctor
