// Stream sockets, TCP and Unix, with deadlines and errors that name the address.
//
// Every socket made here is close-on-exec and non-blocking; TCP ones have TCP_NODELAY.
// Functions that wait take a Deadline and poll. All are safe to call from any thread; one socket
// may be read by one thread and written by another at the same time.
#pragma once

#include <sys/socket.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/unique_fd.h"
#include "lockstep/base/deadline.h"
#include "lockstep/base/status.h"

namespace lockstep {

// An IPv4 or IPv6 address with port, or an abstract Unix name.
struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t length = 0;

  int family() const { return storage.ss_family; }
  // 0 for Unix addresses.
  std::uint16_t port() const;
  void set_port(std::uint16_t port);
  bool is_loopback() const;  // 127.0.0.0/8, ::1, ::ffff:127.x, or a Unix address
  // "127.0.0.1", "::1": without port and brackets. Empty for Unix addresses.
  std::string host() const;
  // "127.0.0.1:29500", "[::1]:29500", "unix:@name".
  std::string to_string() const;
};

// "host:port", "[v6]:port". The error names the text and what was expected.
struct HostPort {
  std::string host;
  std::uint16_t port = 0;
};
Result<HostPort> parse_host_port(const std::string& text);
// What parse_host_port() reads: IPv6 in brackets.
std::string to_string(const HostPort& place);

// An abstract Unix address: lives in the network namespace, leaves nothing in the file system.
SocketAddress abstract_unix_address(const std::string& name);

// Listening, bound to exactly `address` (port 0: the kernel chooses; see local_address).
// In use: already_exists. Not an address of this host: invalid_argument.
Result<UniqueFd> listen_on(const SocketAddress& address, int backlog = 4096);
Result<SocketAddress> local_address(int fd);
Result<SocketAddress> peer_address(int fd);
// The peer's address for messages; never fails.
std::string peer_text(int fd);

// Waits for one connection until the deadline (timed_out).
Result<UniqueFd> accept_from(int listener, Deadline deadline);
// One attempt; errors name the address. timed_out: no answer by the deadline, or its host cannot be reached now.
// resource_exhausted: this host lacks descriptors, ports or memory now. unavailable: no process is listening there, or
// another reason that does not pass.
Result<UniqueFd> connect_to(const SocketAddress& address, Deadline deadline);

// How an address responds to an attempt to connect. The connection is closed at once.
enum class AddressState : std::uint8_t {
  answered,
  refused,  // its host answers that no process is listening there
  silent,   // no answer by the deadline, or the host cannot be reached
};
AddressState probe_address(const SocketAddress& address, Deadline deadline);

// Makes the kernel detect within about 15 s that a TCP peer's host or link is down, on an idle
// connection too. No effect on Unix sockets.
void detect_dead_peer(int fd);

// Whole buffers or an error: a closed connection is peer_lost, the deadline is timed_out.
Status send_all(int fd, std::span<const std::byte> bytes, Deadline deadline);
Status receive_all(int fd, std::span<std::byte> bytes, Deadline deadline);

// Local credentials of the process at the other end of a Unix socket.
struct PeerCredentials {
  int pid = 0;
  unsigned uid = 0;
};
Result<PeerCredentials> peer_credentials(int unix_fd);

// Waits until fd is ready for `events` (POLLIN, POLLOUT); timed_out at the deadline.
Status wait_ready(int fd, short events, Deadline deadline);

// strerror(3), thread-safe, with the name: "Connection refused (ECONNREFUSED)".
std::string errno_text(int error);

}  // namespace lockstep
