// A port on which no process listens, and which no other process can take meanwhile.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>

#include "base/net/socket.h"
#include "base/unique_fd.h"

namespace lockstep::testing {

class ReservedPort {
 public:
  // Bound to a free port of 127.0.0.1, not listening: connections are refused.
  ReservedPort() : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    bound_ = ::bind(fd_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
  }
  bool bound() const { return bound_; }
  SocketAddress address() const { return local_address(fd_.get()).value(); }
  std::uint16_t port() const { return address().port(); }
  // From now on connections are accepted; the caller owns the listening socket.
  UniqueFd listen() {
    ::listen(fd_.get(), 64);
    return std::move(fd_);
  }

 private:
  UniqueFd fd_;
  bool bound_ = false;
};

}  // namespace lockstep::testing
