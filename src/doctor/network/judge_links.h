// What the hosts' reports say about the network. Pure.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/net/socket.h"
#include "doctor/network/host_report.h"

namespace lockstep::doctor {

// One row for each link that does not work or is slow, for each host that is missing or whose clock is off; a green one
// if there is nothing of the kind. `reports`: of the hosts that came, by index; at least one.
std::vector<Finding> judge_links(const std::vector<HostPort>& hosts, const std::map<int, HostReport>& reports);

// A row for each host, a column for each: latency and rate from the row's host to the column's, or why there is none.
std::string link_table(const std::vector<HostPort>& hosts, const std::map<int, HostReport>& reports);

}  // namespace lockstep::doctor
