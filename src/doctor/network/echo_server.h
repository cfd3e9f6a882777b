// Answers the measurements of other hosts, at a port that the kernel chooses, as ranks accept connections.
//
// A connection passes the handshake of a data link, so that it is authenticated, and encrypted as collectives are.
// At most as many connections as there are hosts, and kStrangers more, are served at the same time; others wait.
// Then the other host sends requests of 16 bytes (a kind and a length):
//   clock:  answered with the times at which the request arrived and at which the answer was sent
//   data:   `length` bytes follow; answered with one byte when they have arrived
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/net/accept_channel.h"
#include "base/net/connection_identity.h"
#include "base/net/socket.h"

namespace lockstep::doctor {

enum class RequestKind : std::uint64_t { clock = 1, data = 2 };
struct Request {
  RequestKind kind = RequestKind::clock;
  std::uint64_t length = 0;
};
struct ClockAnswer {  // nanoseconds of CLOCK_REALTIME
  std::int64_t received = 0;
  std::int64_t sent = 0;
};
inline constexpr std::size_t kStrangers = 32;
inline constexpr std::uint64_t kLargestData = std::uint64_t{256} << 20;

std::int64_t wall_clock_ns();
// Of a measurement of host `to` by host `from`.
ConnectionIdentity measurement_identity(int from, int to);

class EchoServer {
 public:
  // Listens at `address` (its port is 0). `hosts`: how many there are; `self`: this one.
  static Result<std::unique_ptr<EchoServer>> start(const SocketAddress& address, const Secret& secret,
                                                   EncryptionPolicy policy, int hosts, int self);
  // Ends all connections.
  ~EchoServer();
  EchoServer(const EchoServer&) = delete;
  EchoServer& operator=(const EchoServer&) = delete;

  const std::string& address() const { return address_; }

 private:
  struct Connection {
    std::thread thread;
    std::shared_ptr<std::atomic<bool>> ended;
  };
  EchoServer(UniqueFd listener, std::string address, AcceptRules rules, std::size_t most);
  void run();
  void begin(UniqueFd connection);
  void serve(UniqueFd connection);
  bool accept_handshake(ChannelAcceptor& acceptor) const;
  // False once the connection has ended, or this does.
  bool wait_for_input(Channel& channel) const;

  const UniqueFd listener_;
  const std::string address_;
  const AcceptRules rules_;
  const std::size_t most_connections_;
  std::atomic<bool> stopping_{false};
  std::vector<Connection> connections_;  // owned by thread_
  std::thread thread_;
};

}  // namespace lockstep::doctor
