#include "doctor/local/interfaces.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <ifaddrs.h>
#include <net/if.h>

#include <array>
#include <cstdlib>
#include <map>
#include <memory>
#include <sstream>

#include "base/net/resolve.h"
#include "base/net/socket.h"
#include "rendezvous/network_interface.h"

namespace lockstep::doctor {
namespace {

struct Interface {
  bool up = false;
  std::vector<std::string> addresses = {};
};

std::map<std::string, Interface> read_interfaces() {
  std::map<std::string, Interface> found;
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return found;
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(list, &::freeifaddrs);
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    Interface& item = found[entry->ifa_name];
    item.up = (entry->ifa_flags & IFF_UP) != 0 && (entry->ifa_flags & IFF_RUNNING) != 0;
    if (entry->ifa_addr == nullptr) continue;
    std::array<char, INET6_ADDRSTRLEN> text{};
    const void* address = nullptr;
    if (entry->ifa_addr->sa_family == AF_INET) {
      address = &reinterpret_cast<const sockaddr_in*>(entry->ifa_addr)->sin_addr;
    } else if (entry->ifa_addr->sa_family == AF_INET6) {
      address = &reinterpret_cast<const sockaddr_in6*>(entry->ifa_addr)->sin6_addr;
    }
    if (address != nullptr && ::inet_ntop(entry->ifa_addr->sa_family, address, text.data(), text.size()) != nullptr)
      item.addresses.emplace_back(text.data());
  }
  return found;
}

// "eth0: 10.0.0.1, fe80::1; 10000 Mbit/s".
std::string describe(const System& system, const std::string& name, const Interface& item) {
  const auto rate = system.first_line("/sys/class/net/" + name + "/speed");  // unreadable or -1 if it has none
  const bool has_rate = rate && rate->find_first_not_of("0123456789") == std::string::npos && !rate->empty();
  return fmt::format("{}{}{}",
                     item.addresses.empty() ? "no address" : fmt::format("{}", fmt::join(item.addresses, ", ")),
                     has_rate ? fmt::format("; {} Mbit/s", *rate) : "", item.up ? "" : "; down");
}

// The kernel writes addresses as one hexadecimal number in the host's byte order.
std::string dotted(const std::string& hexadecimal) {
  in_addr address{.s_addr = static_cast<in_addr_t>(std::strtoul(hexadecimal.c_str(), nullptr, 16))};
  std::array<char, INET_ADDRSTRLEN> text{};
  ::inet_ntop(AF_INET, &address, text.data(), text.size());
  return text.data();
}

// "default by 10.0.0.254 on eth0, 10.0.0.0/24 on eth0".
std::string describe_routes(const System& system) {
  std::vector<std::string> routes;
  for (const std::string& line : system.lines("/proc/net/route")) {
    std::istringstream words(line);
    std::string name, target, gateway, flags, references, uses, metric, mask;
    if (!(words >> name >> target >> gateway >> flags >> references >> uses >> metric >> mask) || name == "Iface")
      continue;
    const int bits = __builtin_popcountl(std::strtoul(mask.c_str(), nullptr, 16));
    const std::string to = bits == 0 ? "default" : fmt::format("{}/{}", dotted(target), bits);
    routes.push_back(gateway == "00000000" ? fmt::format("{} on {}", to, name)
                                           : fmt::format("{} by {} on {}", to, dotted(gateway), name));
  }
  return routes.empty() ? "none (IPv4)" : fmt::format("{}", fmt::join(routes, ", "));
}

// Also if there is no host, or none of this name.
bool is_on_loopback(const std::string& host) {
  if (host.empty()) return true;
  const auto addresses = resolve(host, 0);
  return !addresses.ok() || addresses->front().is_loopback();
}

}  // namespace

std::vector<Finding> examine_interfaces(const System& system, const std::string& towards) {
  std::vector<Finding> findings;
  for (const auto& [name, item] : read_interfaces()) {
    if (name != "lo") findings.push_back(green("interface " + name, describe(system, name, item)));
  }
  findings.push_back(green("routes", describe_routes(system)));
  const std::string wanted = wanted_interface();
  const auto chosen = choose_local_address(wanted, towards);
  const std::string why = !wanted.empty()    ? fmt::format("LOCKSTEP_INTERFACE={}", wanted)
                          : !towards.empty() ? fmt::format("the route to {}", towards)
                                             : "the first interface that is up";
  if (!chosen.ok()) {
    findings.push_back(red("address of ranks", chosen.status().message(),
                           "set LOCKSTEP_INTERFACE to an interface that the other hosts reach, or unset it"));
  } else if (chosen->is_loopback() && !is_on_loopback(towards)) {
    findings.push_back(red("address of ranks", fmt::format("{} ({})", chosen->host(), why),
                           "no other host reaches a loopback address: set LOCKSTEP_INTERFACE to another interface"));
  } else {
    findings.push_back(green("address of ranks", fmt::format("{} ({})", chosen->host(), why)));
  }
  return findings;
}

}  // namespace lockstep::doctor
