#include "launch/process/rank_port.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <cerrno>

#include "base/net/resolve.h"
#include "base/net/socket.h"

namespace lockstep::launch {

Result<RankPort> reserve_rank_port(const std::string& host, std::uint16_t port) {
  const auto addresses = resolve(host, port);
  if (!addresses.ok()) return addresses.status();
  const SocketAddress& address = addresses->front();
  RankPort result;
  result.fd.reset(::socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  ::setsockopt(result.fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  const auto* name = reinterpret_cast<const sockaddr*>(&address.storage);
  if (!result.fd.valid() || ::bind(result.fd.get(), name, address.length) != 0) {
    const auto code = errno == EADDRINUSE ? StatusCode::already_exists : StatusCode::invalid_argument;
    return Status(code, fmt::format("{} cannot be reserved for rank 0: {}", address.to_string(), errno_text(errno)));
  }
  const auto bound = local_address(result.fd.get());
  if (!bound.ok()) return bound.status();
  result.port = bound->port();
  return result;
}

}  // namespace lockstep::launch
