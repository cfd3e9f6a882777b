#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/un.h>

#include <charconv>
#include <cstddef>
#include <cstring>
#include <string_view>

#include "base/net/socket.h"
#include "base/printable.h"

namespace lockstep {
namespace {

const sockaddr_in& as_v4(const SocketAddress& address) { return reinterpret_cast<const sockaddr_in&>(address.storage); }
const sockaddr_in6& as_v6(const SocketAddress& address) {
  return reinterpret_cast<const sockaddr_in6&>(address.storage);
}

std::string unix_text(const SocketAddress& address) {
  const auto& un = reinterpret_cast<const sockaddr_un&>(address.storage);
  const std::size_t header = offsetof(sockaddr_un, sun_path);
  if (address.length <= header) return "unix:(unnamed)";
  const std::string_view path(un.sun_path, address.length - header);
  // The process at the other end chooses its name.
  if (path.front() == '\0') return fmt::format("unix:@{}", printable(path.substr(1)));
  return fmt::format("unix:{}", printable(path.data()));
}

}  // namespace

std::uint16_t SocketAddress::port() const {
  if (family() == AF_INET) return ntohs(as_v4(*this).sin_port);
  if (family() == AF_INET6) return ntohs(as_v6(*this).sin6_port);
  return 0;
}

void SocketAddress::set_port(std::uint16_t port) {
  if (family() == AF_INET) reinterpret_cast<sockaddr_in&>(storage).sin_port = htons(port);
  if (family() == AF_INET6) reinterpret_cast<sockaddr_in6&>(storage).sin6_port = htons(port);
}

bool SocketAddress::is_loopback() const {
  switch (family()) {
    case AF_UNIX: return true;
    case AF_INET: return (ntohl(as_v4(*this).sin_addr.s_addr) >> 24) == 127;
    case AF_INET6: {
      const in6_addr& v6 = as_v6(*this).sin6_addr;
      if (IN6_IS_ADDR_V4MAPPED(&v6)) return v6.s6_addr[12] == 127;
      return IN6_IS_ADDR_LOOPBACK(&v6);
    }
    default: return false;
  }
}

std::string SocketAddress::host() const {
  char text[INET6_ADDRSTRLEN] = {};
  if (family() == AF_INET) ::inet_ntop(AF_INET, &as_v4(*this).sin_addr, text, sizeof(text));
  if (family() == AF_INET6) ::inet_ntop(AF_INET6, &as_v6(*this).sin6_addr, text, sizeof(text));
  return text;
}

std::string SocketAddress::to_string() const {
  switch (family()) {
    case AF_UNIX: return unix_text(*this);
    case AF_INET: return fmt::format("{}:{}", host(), port());
    case AF_INET6: return fmt::format("[{}]:{}", host(), port());
    default: return "(no address)";
  }
}

Result<HostPort> parse_host_port(const std::string& text) {
  const auto refuse = [&](std::string_view why) {
    return Status(
        StatusCode::invalid_argument,
        fmt::format("'{}' is not an address: {}; expected host:port or [IPv6]:port, with a port from 0 to 65535", text,
                    why));
  };
  const std::size_t colon = text.rfind(':');
  if (colon == std::string::npos) return refuse("there is no port");
  std::string host = text.substr(0, colon);
  if (!host.empty() && host.front() == '[') {
    if (host.back() != ']') return refuse("the bracket is not closed before the port");
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != std::string::npos) {
    return refuse("an IPv6 address must be in brackets");
  }
  if (host.empty()) return refuse("there is no host");
  const std::string_view digits = std::string_view(text).substr(colon + 1);
  HostPort result{std::move(host), 0};
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), result.port);
  if (error != std::errc{} || end != digits.data() + digits.size())
    return refuse("the port is not a number from 0 to 65535");
  return result;
}

std::string to_string(const HostPort& place) {
  return place.host.find(':') == std::string::npos ? fmt::format("{}:{}", place.host, place.port)
                                                   : fmt::format("[{}]:{}", place.host, place.port);
}

SocketAddress abstract_unix_address(const std::string& name) {
  SocketAddress address;
  auto& un = reinterpret_cast<sockaddr_un&>(address.storage);
  un.sun_family = AF_UNIX;
  const std::size_t size = std::min(name.size(), sizeof(un.sun_path) - 1);
  std::memcpy(un.sun_path + 1, name.data(), size);
  address.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + size);
  return address;
}

}  // namespace lockstep
