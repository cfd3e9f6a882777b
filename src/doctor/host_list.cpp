#include "doctor/host_list.h"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/printable.h"
#include "rendezvous/node_list.h"

namespace lockstep::doctor {
namespace {

Status refuse_host(const std::string& item, const std::string& why) {
  return {StatusCode::invalid_argument, fmt::format("'{}': {}", printable(item), why)};
}

// At commas that are not in brackets.
std::vector<std::string> split_items(const std::string& text) {
  std::vector<std::string> items(1);
  int depth = 0;
  for (const char c : text) {
    depth += c == '[' ? 1 : c == ']' ? -1 : 0;
    if (c == ',' && depth <= 0) {
      items.emplace_back();
    } else {
      items.back() += c;
    }
  }
  return items;
}

// Without its zone ("%eth0").
bool is_ipv6(const std::string& text) {
  in6_addr address{};
  return ::inet_pton(AF_INET6, text.substr(0, text.find('%')).c_str(), &address) == 1;
}

Result<std::vector<HostPort>> expand_item(const std::string& item, std::uint16_t default_port) {
  if (item.empty()) return refuse_host(item, "a host is missing before or after a comma");
  if (const auto at = item.find('@'); at != std::string::npos) {
    return refuse_host(item,
                       fmt::format("leave out the user, '{}': lockstep doctor does not log in; run it on each host",
                                   printable(item.substr(0, at + 1))));
  }
  if (is_ipv6(item)) return std::vector<HostPort>{{item, default_port}};
  // A port follows the last bracket, if there is one.
  const std::size_t bracket = item.rfind(']');
  const bool has_port = item.find(':', bracket == std::string::npos ? 0 : bracket) != std::string::npos;
  auto place = parse_host_port(has_port ? item : fmt::format("{}:{}", item, default_port));
  if (item.front() != '[' && item.find_first_of("[]") != std::string::npos) {
    const std::size_t colon = has_port ? item.rfind(':') : item.size();
    place = parse_host_port("host" + (has_port ? item.substr(colon) : fmt::format(":{}", default_port)));
    if (!place.ok()) return refuse_host(item, "the port is not a number from 0 to 65535");
    const auto names = expand_node_list(item.substr(0, colon));
    if (!names.ok()) return names.status();
    std::vector<HostPort> hosts;
    for (const std::string& name : *names) hosts.push_back({name, place->port});
    return hosts;
  }
  if (!place.ok()) return place.status();
  if (item.front() == '[' && !is_ipv6(place->host))
    return refuse_host(item, "there is no IPv6 address in the brackets");
  return std::vector<HostPort>{*std::move(place)};
}

}  // namespace

Result<std::vector<HostPort>> parse_host_list(const std::string& text, std::uint16_t default_port) {
  std::vector<HostPort> hosts;
  std::set<std::string> seen;
  for (const std::string& item : split_items(text)) {
    auto more = expand_item(item, default_port);
    if (!more.ok()) return more.status();
    for (HostPort& host : *more) {
      if (!seen.insert(to_string(host)).second) return refuse_host(to_string(host), "it is listed twice");
      hosts.push_back(std::move(host));
    }
    if (hosts.size() > kMaxListedNodes) {
      return refuse_host(item, fmt::format("there are more than {} hosts", kMaxListedNodes));
    }
  }
  return hosts;
}

}  // namespace lockstep::doctor
