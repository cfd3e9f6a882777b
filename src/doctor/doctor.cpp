#include "doctor/doctor.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/host_name.h"
#include "doctor/local/interfaces.h"
#include "doctor/local/libraries.h"
#include "doctor/local/limits.h"
#include "doctor/local/processors.h"
#include "doctor/local/secret_check.h"
#include "doctor/network/host_exchange.h"
#include "doctor/network/judge_links.h"
#include "launch/options/core_binding.h"

namespace lockstep::doctor {
namespace {

void add(std::vector<Finding>& findings, std::vector<Finding> more) {
  std::move(more.begin(), more.end(), std::back_inserter(findings));
}

// Another host's name, for the route to it.
std::string first_other(const std::vector<HostPort>& hosts) {
  for (const HostPort& host : hosts) {
    if (!launch::is_on_this_host(host)) return host.host;
  }
  return {};
}

std::vector<Finding> examine_this_host(const DoctorOptions& options, const Result<Secret>& secret) {
  const System system;
  const Libraries libraries = find_libraries(system);  // first: it forks
  const int cores = static_cast<int>(launch::usable_cores().size());
  const int hosts = std::max<int>(1, static_cast<int>(options.hosts.size()));
  std::vector<Finding> findings = judge_limits(read_limits(), system, hosts * options.ranks_per_host);
  add(findings, judge_processors(system, cores, options.ranks_per_host));
  add(findings, judge_libraries(libraries));
  findings.push_back(judge_secret(secret, hosts > 1));
  add(findings, examine_interfaces(system, first_other(options.hosts)));
  return findings;
}

}  // namespace

Diagnosis examine(const DoctorOptions& options) {
  Diagnosis diagnosis{.hosts = options.hosts};
  const auto secret = Secret::from_environment();
  HostReport own{.host = host_name(), .findings = examine_this_host(options, secret)};
  const auto policy = encryption_from_environment();
  if (!policy.ok()) {
    own.findings.push_back(red("encryption", policy.status().message(), "correct or unset LOCKSTEP_ENCRYPT"));
  }
  if (options.hosts.size() < 2 || !secret.ok() || !policy.ok()) {
    diagnosis.reports[0] = std::move(own);
    return diagnosis;
  }
  auto exchange =
      HostExchange::open({.hosts = options.hosts, .secret = *secret, .policy = *policy, .timeout = options.timeout});
  if (!exchange.ok()) {
    diagnosis.network.push_back(
        red("this host", exchange.status().message(),
            "--hosts needs an address of each host, the same list on all of them; on each host, "
            "no other program may use its port"));
    diagnosis.reports[0] = std::move(own);
    return diagnosis;
  }
  diagnosis.self = own.index = (*exchange)->self();
  own.links = (*exchange)->measure();
  diagnosis.reports = (*exchange)->exchange(own);
  diagnosis.network = judge_links(options.hosts, diagnosis.reports);
  return diagnosis;
}

}  // namespace lockstep::doctor
