#include "base/net/socket.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>

#include <cerrno>
#include <cstring>
#include <thread>

#include "base/net/fork_guard.h"

namespace lockstep {
namespace {

bool is_shortage(int error) { return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM; }

Result<UniqueFd> make_socket(int family) {
  UniqueFd fd(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) {
    return Status(is_shortage(errno) ? StatusCode::resource_exhausted : StatusCode::unavailable,
                  fmt::format("cannot create a socket: {}", errno_text(errno)));
  }
  return fd;
}

void disable_delay(int fd, int family) {
  const int one = 1;
  if (family != AF_UNIX) ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
}

StatusCode code_of_connect_error(int error) {
  switch (error) {
    case ENETUNREACH:
    case EHOSTUNREACH:
    case ENETDOWN:
    case EHOSTDOWN:
    case ENONET:
    case ETIMEDOUT: return StatusCode::timed_out;
    case EADDRNOTAVAIL: return StatusCode::resource_exhausted;  // no local port is free
    default: return is_shortage(error) ? StatusCode::resource_exhausted : StatusCode::unavailable;
  }
}

Status connect_error(const SocketAddress& address, int error) {
  return Status(code_of_connect_error(error),
                fmt::format("cannot connect to {}: {}", address.to_string(), errno_text(error)));
}

Status lost(int fd, int error) {
  return Status(StatusCode::peer_lost, fmt::format("the connection to {} broke: {}", peer_text(fd), errno_text(error)));
}

// If both ends of a loopback connection have the same port, they are one socket: if no process listens on a
// port of the ephemeral range, the kernel may choose it as the local port and connect it to itself.
bool connected_to_itself(int fd) {
  const auto local = local_address(fd);
  const auto peer = peer_address(fd);
  return local.ok() && peer.ok() && local->family() != AF_UNIX && local->length == peer->length &&
         std::memcmp(&local->storage, &peer->storage, local->length) == 0;
}

Status finish_connect(int fd, const SocketAddress& address, Deadline deadline) {
  if (const Status ready = wait_ready(fd, POLLOUT, deadline); !ready.ok()) {
    return Status(ready.code(), fmt::format("no answer from {} before the deadline", address.to_string()));
  }
  int error = 0;
  socklen_t size = sizeof(error);
  ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size);
  return error == 0 ? Status() : connect_error(address, error);
}

}  // namespace

std::string errno_text(int error) {
  char buffer[128];
  const char* text = ::strerror_r(error, buffer, sizeof(buffer));
  const char* name = ::strerrorname_np(error);
  return fmt::format("{} ({})", text, name != nullptr ? name : std::to_string(error));
}

Result<UniqueFd> listen_on(const SocketAddress& address, int backlog) {
  auto fd = make_socket(address.family());
  if (!fd.ok()) return fd;
  const int one = 1;
  if (address.family() != AF_UNIX) ::setsockopt(fd->get(), SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
  if (address.family() == AF_INET6) ::setsockopt(fd->get(), IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof(one));
  if (::bind(fd->get(), reinterpret_cast<const sockaddr*>(&address.storage), address.length) != 0 ||
      ::listen(fd->get(), backlog) != 0) {
    const int error = errno;
    const std::string where = address.to_string();
    switch (error) {
      case EADDRINUSE:
        return Status(StatusCode::already_exists,
                      fmt::format("cannot listen on {}: another process already uses this port; end it, choose "
                                  "another port, or port 0 for any free one",
                                  where));
      case EADDRNOTAVAIL:
        return Status(StatusCode::invalid_argument,
                      fmt::format("cannot listen on {}: it is not an address of this host", where));
      default: return Status(StatusCode::unavailable, fmt::format("cannot listen on {}: {}", where, errno_text(error)));
    }
  }
  return fd;
}

Result<SocketAddress> local_address(int fd) {
  SocketAddress address;
  address.length = sizeof(address.storage);
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&address.storage), &address.length) != 0) {
    return Status(StatusCode::invalid_argument, fmt::format("fd {} has no local address: {}", fd, errno_text(errno)));
  }
  return address;
}

Result<SocketAddress> peer_address(int fd) {
  SocketAddress address;
  address.length = sizeof(address.storage);
  if (::getpeername(fd, reinterpret_cast<sockaddr*>(&address.storage), &address.length) != 0) {
    return Status(StatusCode::peer_lost, fmt::format("fd {} is not connected: {}", fd, errno_text(errno)));
  }
  return address;
}

std::string peer_text(int fd) {
  const auto address = peer_address(fd);
  return address.ok() ? address->to_string() : "a peer that has disconnected";
}

Result<UniqueFd> accept_from(int listener, Deadline deadline) {
  while (true) {
    UniqueFd fd(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (fd.valid()) {
      const auto local = local_address(fd.get());
      disable_delay(fd.get(), local.ok() ? local->family() : AF_UNIX);
      close_in_forked_children(fd.get());
      return fd;
    }
    const int error = errno;
    if (error == EINTR || error == ECONNABORTED) continue;
    if (error != EAGAIN && error != EWOULDBLOCK) {
      return Status(is_shortage(error) ? StatusCode::resource_exhausted : StatusCode::unavailable,
                    fmt::format("cannot accept a connection: {}", errno_text(error)));
    }
    LOCKSTEP_RETURN_IF_ERROR(wait_ready(listener, POLLIN, deadline).with_context("waiting for a connection"));
  }
}

Result<UniqueFd> connect_to(const SocketAddress& address, Deadline deadline) {
  auto fd = make_socket(address.family());
  if (!fd.ok()) return fd;
  disable_delay(fd->get(), address.family());
  close_in_forked_children(fd->get());
  while (::connect(fd->get(), reinterpret_cast<const sockaddr*>(&address.storage), address.length) != 0) {
    if (errno == EINPROGRESS || errno == EINTR) {
      LOCKSTEP_RETURN_IF_ERROR(finish_connect(fd->get(), address, deadline));
      break;
    }
    // A Unix listener with a full backlog returns EAGAIN and offers nothing to poll for.
    if (errno != EAGAIN) return connect_error(address, errno);
    if (deadline.expired()) {
      return Status(StatusCode::timed_out, fmt::format("the backlog of {} stayed full", address.to_string()));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  if (connected_to_itself(fd->get())) return connect_error(address, ECONNREFUSED);
  return fd;
}

AddressState probe_address(const SocketAddress& address, Deadline deadline) {
  const auto connection = connect_to(address, deadline);
  if (connection.ok()) return AddressState::answered;
  return connection.status() == connect_error(address, ECONNREFUSED) ? AddressState::refused : AddressState::silent;
}

void detect_dead_peer(int fd) {
  const auto set = [fd](int level, int option, int value) { ::setsockopt(fd, level, option, &value, sizeof(value)); };
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, 5);
  set(IPPROTO_TCP, TCP_KEEPINTVL, 3);
  set(IPPROTO_TCP, TCP_KEEPCNT, 3);
  // Keep-alive is silent while data is unacknowledged; this limits that case.
  set(IPPROTO_TCP, TCP_USER_TIMEOUT, 15000);
}

Status send_all(int fd, std::span<const std::byte> bytes, Deadline deadline) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent >= 0) {
      bytes = bytes.subspan(static_cast<std::size_t>(sent));
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      const Status ready = wait_ready(fd, POLLOUT, deadline);
      if (!ready.ok()) return ready.with_context("sending to " + peer_text(fd));
    } else if (errno != EINTR) {
      return lost(fd, errno);
    }
  }
  return {};
}

Status receive_all(int fd, std::span<std::byte> bytes, Deadline deadline) {
  while (!bytes.empty()) {
    const ssize_t got = ::recv(fd, bytes.data(), bytes.size(), 0);
    if (got > 0) {
      bytes = bytes.subspan(static_cast<std::size_t>(got));
    } else if (got == 0) {
      return Status(StatusCode::peer_lost, fmt::format("{} closed the connection", peer_text(fd)));
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      const Status ready = wait_ready(fd, POLLIN, deadline);
      if (!ready.ok()) return ready.with_context("waiting for " + peer_text(fd));
    } else if (errno != EINTR) {
      return lost(fd, errno);
    }
  }
  return {};
}

Result<PeerCredentials> peer_credentials(int unix_fd) {
  ucred credentials{};
  socklen_t size = sizeof(credentials);
  if (::getsockopt(unix_fd, SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0) {
    return Status(StatusCode::invalid_argument,
                  fmt::format("fd {} has no peer credentials: {}", unix_fd, errno_text(errno)));
  }
  return PeerCredentials{credentials.pid, credentials.uid};
}

Status wait_ready(int fd, short events, Deadline deadline) {
  while (true) {
    pollfd entry{fd, events, 0};
    const int ready = ::poll(&entry, 1, deadline.poll_timeout_ms());
    // Errors and hang-ups count as ready: the call that follows reports them.
    if (ready > 0) return {};
    if (ready < 0 && errno != EINTR) {
      return Status(StatusCode::internal, fmt::format("poll failed: {}", errno_text(errno)));
    }
    if (deadline.expired()) return Status(StatusCode::timed_out, "the deadline passed");
  }
}

}  // namespace lockstep
