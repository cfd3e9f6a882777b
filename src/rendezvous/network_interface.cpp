#include "rendezvous/network_interface.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "base/net/resolve.h"
#include "base/unique_fd.h"

namespace lockstep {
namespace {

struct InterfaceAddress {
  std::string name;
  SocketAddress address;
  bool is_loopback = false;
  // Smaller is better: IPv4, then IPv6, then addresses that need a scope.
  int preference = 0;
};

Result<std::vector<InterfaceAddress>> interface_addresses() {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) {
    return Status(StatusCode::unavailable, fmt::format("cannot list the network interfaces: {}", errno_text(errno)));
  }
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(list, &::freeifaddrs);
  std::vector<InterfaceAddress> found;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || (entry->ifa_flags & IFF_UP) == 0) continue;
    const int family = entry->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    InterfaceAddress item;
    item.name = entry->ifa_name;
    item.is_loopback = (entry->ifa_flags & IFF_LOOPBACK) != 0;
    item.address.length = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    std::memcpy(&item.address.storage, entry->ifa_addr, item.address.length);
    if (family == AF_INET6) {
      const auto& v6 = reinterpret_cast<const sockaddr_in6&>(item.address.storage);
      item.preference = IN6_IS_ADDR_LINKLOCAL(&v6.sin6_addr) ? 2 : 1;
    }
    found.push_back(std::move(item));
  }
  std::stable_sort(found.begin(), found.end(), [](const auto& a, const auto& b) {
    return std::pair(a.is_loopback, a.preference) < std::pair(b.is_loopback, b.preference);
  });
  return found;
}

std::string describe(const std::vector<InterfaceAddress>& interfaces) {
  std::vector<std::string> texts;
  for (const auto& item : interfaces) texts.push_back(fmt::format("{} ({})", item.name, item.address.host()));
  return fmt::format("{}", fmt::join(texts, ", "));
}

Result<SocketAddress> find_wanted(const std::string& wanted) {
  const auto interfaces = interface_addresses();
  if (!interfaces.ok()) return interfaces.status();
  for (const auto& item : *interfaces) {
    if (item.name == wanted || item.address.host() == wanted) return item.address;
  }
  return Status(StatusCode::invalid_argument,
                fmt::format("the network interface is '{}'; expected the name or the address of an interface of this "
                            "host that is up: {}",
                            wanted, describe(*interfaces)));
}

// Connecting a datagram socket sends nothing, but makes the kernel choose the route.
Result<SocketAddress> address_towards(const std::string& host) {
  const auto targets = resolve(host, 9);
  if (!targets.ok()) return targets.status();
  int error = 0;
  for (const auto& target : *targets) {
    const UniqueFd fd(::socket(target.family(), SOCK_DGRAM | SOCK_CLOEXEC, 0));
    if (fd.valid() && ::connect(fd.get(), reinterpret_cast<const sockaddr*>(&target.storage), target.length) == 0) {
      auto local = local_address(fd.get());
      if (local.ok()) local->set_port(0);
      return local;
    }
    error = errno;
  }
  return Status(StatusCode::unavailable, fmt::format("no route to {} ({}); name the interface with LOCKSTEP_INTERFACE",
                                                     host, errno_text(error)));
}

}  // namespace

Result<SocketAddress> choose_local_address(const std::string& wanted, const std::string& towards) {
  if (!wanted.empty()) return find_wanted(wanted);
  if (!towards.empty()) return address_towards(towards);
  const auto interfaces = interface_addresses();
  if (!interfaces.ok()) return interfaces.status();
  if (interfaces->empty()) return Status(StatusCode::unavailable, "no network interface of this host is up");
  return interfaces->front().address;
}

Status reachable_by_address(const SocketAddress& address) {
  if (address.family() != AF_INET6) return {};
  const auto& v6 = reinterpret_cast<const sockaddr_in6&>(address.storage).sin6_addr;
  if (!IN6_IS_ADDR_LINKLOCAL(&v6)) return {};
  return Status(StatusCode::invalid_argument,
                fmt::format("{} is an address of one link only: other hosts cannot connect to it without the name of "
                            "their own interface; name another address or interface with LOCKSTEP_INTERFACE",
                            address.host()));
}

std::string wanted_interface(const std::string& option) {
  if (!option.empty()) return option;
  const char* variable = std::getenv("LOCKSTEP_INTERFACE");
  return variable != nullptr ? variable : "";
}

}  // namespace lockstep
