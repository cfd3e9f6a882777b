#include "doctor/network/echo_server.h"

#include <fmt/format.h>
#include <poll.h>

#include <array>
#include <chrono>
#include <cstring>

#include "base/start_thread.h"

namespace lockstep::doctor {
namespace {

constexpr std::chrono::milliseconds kTick{100};  // how often threads notice that they shall stop
constexpr std::chrono::seconds kSlowest{60};     // for one request

}  // namespace

std::int64_t wall_clock_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::system_clock::now().time_since_epoch())
      .count();
}

ConnectionIdentity measurement_identity(int from, int to) {
  return {.role = "data", .group = "doctor", .from_rank = from, .to_rank = to};
}

Result<std::unique_ptr<EchoServer>> EchoServer::start(const SocketAddress& address, const Secret& secret,
                                                      EncryptionPolicy policy, int hosts, int self) {
  LOCKSTEP_RETURN_IF_ERROR(may_bind(address, secret));
  auto listener = listen_on(address);
  if (!listener.ok()) return listener.status();
  const auto bound = local_address(listener->get());
  if (!bound.ok()) return bound.status();
  AcceptRules rules{.secret = secret, .group = "doctor", .policy = policy};
  if (!secret.empty()) {
    std::vector<ConnectionIdentity> identities;
    for (int from = 0; from < hosts; ++from) identities.push_back(measurement_identity(from, self));
    rules.keys = LinkKeyRing(secret, identities);
  }
  std::unique_ptr<EchoServer> server(new EchoServer(*std::move(listener), bound->to_string(), std::move(rules),
                                                    static_cast<std::size_t>(hosts) + kStrangers));
  auto thread = start_thread("answers measurements", [raw = server.get()] { raw->run(); });
  if (!thread.ok()) return thread.status();
  server->thread_ = *std::move(thread);
  return server;
}

EchoServer::EchoServer(UniqueFd listener, std::string address, AcceptRules rules, std::size_t most)
    : listener_(std::move(listener)), address_(std::move(address)), rules_(std::move(rules)), most_connections_(most) {}

EchoServer::~EchoServer() {
  stopping_ = true;
  if (thread_.joinable()) thread_.join();
}

void EchoServer::run() {
  while (!stopping_) {
    std::erase_if(connections_, [](Connection& connection) {
      if (!*connection.ended) return false;
      connection.thread.join();
      return true;
    });
    if (connections_.size() >= most_connections_) {
      std::this_thread::sleep_for(kTick);
      continue;
    }
    auto connection = accept_from(listener_.get(), Deadline::after(kTick));
    if (connection.ok()) begin(*std::move(connection));
  }
  for (Connection& connection : connections_) connection.thread.join();
}

// Without a thread for it, the connection is closed: the other host reports that.
void EchoServer::begin(UniqueFd connection) {
  const auto ended = std::make_shared<std::atomic<bool>>(false);
  const auto shared = std::make_shared<UniqueFd>(std::move(connection));
  auto thread = start_thread("answers one host", [this, shared, ended] {
    serve(std::move(*shared));
    *ended = true;
  });
  if (thread.ok()) connections_.push_back({*std::move(thread), ended});
}

bool EchoServer::accept_handshake(ChannelAcceptor& acceptor) const {
  const Deadline deadline = Deadline::after(kHandshakeTimeout);
  while (!acceptor.accepted()) {
    if (stopping_ || deadline.expired()) return false;
    if (!wait_ready(acceptor.fd(), POLLIN, Deadline::after(kTick)).ok()) continue;
    if (!acceptor.advance().ok()) return false;
  }
  return true;
}

bool EchoServer::wait_for_input(Channel& channel) const {
  while (!stopping_) {
    if (channel.has_buffered() || wait_ready(channel.fd(), POLLIN, Deadline::after(kTick)).ok()) return true;
  }
  return false;
}

void EchoServer::serve(UniqueFd connection) {
  ChannelAcceptor acceptor(std::move(connection), rules_, [](const ConnectionIdentity& identity) {
    return identity.role == "data" ? Status() : Status(StatusCode::unauthenticated, "not a measurement");
  });
  if (!accept_handshake(acceptor)) return;
  Channel channel = acceptor.take();
  std::vector<std::byte> data;
  while (wait_for_input(channel)) {
    Request request;
    const Deadline deadline = Deadline::after(kSlowest);
    if (!receive_all(channel, std::as_writable_bytes(std::span(&request, 1)), deadline).ok()) return;
    if (request.kind == RequestKind::clock) {
      ClockAnswer answer{.received = wall_clock_ns()};
      answer.sent = wall_clock_ns();
      if (!send_all(channel, std::as_bytes(std::span(&answer, 1)), deadline).ok()) return;
    } else if (request.kind == RequestKind::data && request.length <= kLargestData) {
      data.resize(std::size_t{1} << 20);
      for (std::uint64_t left = request.length; left > 0;) {
        const std::size_t part = std::min<std::uint64_t>(left, data.size());
        if (!receive_all(channel, std::span(data).first(part), deadline).ok()) return;
        left -= part;
      }
      if (!send_all(channel, std::span(data).first(1), deadline).ok()) return;
    } else {
      return;
    }
  }
}

}  // namespace lockstep::doctor
