// The server that TcpStore clients connect to.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "lockstep/base/secret.h"
#include "lockstep/base/status.h"
#include "lockstep/store/store.h"

namespace lockstep {

struct TcpStoreServerOptions {
  // The only address to bind. Without a secret it must be loopback, unless LOCKSTEP_ALLOW_UNAUTHENTICATED=1.
  std::string host = "127.0.0.1";
  std::uint16_t port = 0;  // 0: any free port; see TcpStoreServer::port
  // A bound, listening TCP socket to serve instead of host and port. start() takes ownership of it, even if it
  // fails. The rule about secrets applies to its address.
  int listening_fd = -1;
  Secret secret = {};
  StoreLimits limits = {};
  // A client that has not proved by then that it has the secret is disconnected.
  std::chrono::milliseconds handshake_timeout{5000};
};

// Runs one thread, which start() starts and the destructor joins. Clients that send garbage, stall, do
// not read their replies or vanish cost a bounded amount of memory and do not delay other clients.
// Thread-safe.
class TcpStoreServer {
 public:
  // already_exists: the port is in use. invalid_argument: not an address of this host.
  static Result<std::unique_ptr<TcpStoreServer>> start(TcpStoreServerOptions options);
  // Closes all connections; pending calls of clients fail with peer_lost. Last wills are not carried out.
  ~TcpStoreServer();
  TcpStoreServer(const TcpStoreServer&) = delete;
  TcpStoreServer& operator=(const TcpStoreServer&) = delete;

  std::uint16_t port() const;
  // "127.0.0.1:29500".
  std::string address() const;

 private:
  class Running;
  explicit TcpStoreServer(std::unique_ptr<Running> running);
  std::unique_ptr<Running> running_;
};

}  // namespace lockstep
