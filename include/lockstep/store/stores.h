// The stores that Lockstep has, and the server of the one for several hosts. All functions throw Error.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "lockstep/base/secret.h"
#include "lockstep/store/store.h"

namespace lockstep {

// For the threads of one process.
std::shared_ptr<Store> make_memory_store(const StoreLimits& limits = {});

// In a file that all processes can open: on one host, or on a shared disk whose flock(2) works between hosts. Creates
// the file (mode 0600) if there is none; its directory must exist. The file is a log of changes (docs/wire_format.md);
// when most of it is out of date, it is replaced by a shorter one. It is never deleted. Calls that wait poll it, at
// most every 20 ms. There are no last wills, because a file cannot detect that a process ends. A file that is not a
// store is refused (protocol_error) and left unchanged.
std::shared_ptr<Store> open_file_store(const std::string& path, const StoreLimits& limits = {});

// Client of a store server. Retries until the deadline while no process is listening on the port: the server may start
// later. One connection, shared by all threads. If the server ends or the connection breaks, all pending and later
// calls return peer_lost. If the server does not answer, a call returns timed_out at most 2 s after its deadline.
// unavailable: the host cannot be resolved or reached. unauthenticated, protocol_error, resource_exhausted: refused.
std::shared_ptr<Store> connect_tcp_store(const std::string& host, std::uint16_t port, const Secret& secret,
                                         Deadline deadline);

// A view of `store` in which every key gets `prefix`, so that two users do not collide. Keys passed and returned are
// without it. It is put before keys as it is; end it with "/" for a separator.
std::shared_ptr<Store> make_prefix_store(std::shared_ptr<Store> store, const std::string& prefix);

struct StoreServerOptions {
  // The only address to bind. Without a secret it must be loopback, unless LOCKSTEP_ALLOW_UNAUTHENTICATED=1.
  std::string host = "127.0.0.1";
  std::uint16_t port = 0;  // 0: any free port; see StoreServer::port
  // A bound, listening TCP socket to serve instead of host and port. serve_tcp_store() takes ownership of it, even if
  // it fails. The rule about secrets applies to its address.
  int listening_fd = -1;
  Secret secret = {};
  StoreLimits limits = {};
  // A client that has not proved by then that it has the secret is disconnected.
  std::chrono::milliseconds handshake_timeout{5000};
};

// Runs one thread. Clients that send garbage, stall, do not read their replies or vanish cost a bounded amount of
// memory and do not delay other clients. Thread-safe. The destructor closes all connections; pending calls of clients
// fail with peer_lost, and last wills are not carried out.
class StoreServer {
 public:
  virtual ~StoreServer() = default;
  virtual std::uint16_t port() const = 0;
  // "127.0.0.1:29500".
  virtual std::string address() const = 0;
};

// already_exists: the port is in use. invalid_argument: not an address of this host.
std::unique_ptr<StoreServer> serve_tcp_store(StoreServerOptions options = {});

}  // namespace lockstep
