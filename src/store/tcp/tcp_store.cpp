#include "store/tcp/tcp_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "base/net/connect_channel.h"
#include "base/net/resolve.h"
#include "base/net/socket.h"
#include "base/random.h"
#include "store/tcp/store_protocol.h"
#include "store/tcp/tcp_store_connection.h"

namespace lockstep {

using store_protocol::Op;
using store_protocol::Request;

namespace {

using namespace std::chrono_literals;

// One attempt at one address. Long enough for a lost first packet, short enough to try the next.
constexpr auto kAttemptTime = 5s;
constexpr std::chrono::milliseconds kFirstPause = 10ms;
constexpr std::chrono::milliseconds kLongestPause = 500ms;

// A server that refuses would refuse again; one that is not listening yet may start later.
bool worth_another_try(StatusCode code) {
  return code == StatusCode::unavailable || code == StatusCode::peer_lost || code == StatusCode::timed_out;
}

Result<Channel> try_once(const SocketAddress& address, const Secret& secret, Deadline deadline) {
  auto fd = connect_to(address, deadline.earlier(Deadline::after(kAttemptTime)));
  // What this host lacks may become free; a server that lacks something has refused.
  if (fd.status().code() == StatusCode::resource_exhausted) {
    return Status(StatusCode::unavailable, fd.status().message());
  }
  if (!fd.ok()) return fd.status();
  detect_dead_peer(fd->get());
  // A store's connections are always encrypted, if there is a secret.
  return connect_channel(*std::move(fd), secret, {.role = "store"}, EncryptionPolicy::all, deadline);
}

// A random half to all of it, so that many clients do not retry at the same time.
std::chrono::microseconds jittered(std::chrono::milliseconds pause) {
  std::byte random{};
  fill_random({&random, 1});
  return std::chrono::microseconds(pause) * (256 + std::to_integer<int>(random)) / 512;
}

std::uint64_t timeout_us(Deadline deadline) {
  return static_cast<std::uint64_t>(std::chrono::ceil<std::chrono::microseconds>(deadline.remaining()).count());
}

Request request_for(Op op, const std::string& key) {
  Request request;
  request.op = op;
  request.keys.push_back(key);
  return request;
}

}  // namespace

Result<std::shared_ptr<TcpStore>> TcpStore::connect(const std::string& host, std::uint16_t port, const Secret& secret,
                                                    Deadline deadline) {
  const auto began = Deadline::Clock::now();
  const auto addresses = resolve(host, port, deadline);
  if (!addresses.ok()) return addresses.status().with_context("cannot reach the store");
  std::chrono::milliseconds pause = kFirstPause;
  while (true) {
    Status last;
    for (const SocketAddress& address : *addresses) {
      auto channel = try_once(address, secret, deadline);
      if (channel.ok()) {
        auto connection = std::make_unique<Connection>(*std::move(channel), address.to_string());
        return std::shared_ptr<TcpStore>(new TcpStore(std::move(connection)));
      }
      last = channel.status();
      if (!worth_another_try(last.code())) {
        return last.with_context(fmt::format("the store at {} cannot be used", address.to_string()));
      }
    }
    if (deadline.remaining() <= pause) {
      const std::chrono::duration<double> waited = Deadline::Clock::now() - began;
      return Status(StatusCode::unavailable,
                    fmt::format("cannot reach the store at {}:{} after {:.1f} s of trying; last reason: {}; check that "
                                "its server runs and that host and port are right",
                                host, port, waited.count(), last.message()));
    }
    std::this_thread::sleep_for(jittered(pause));
    pause = std::min(2 * pause, kLongestPause);
  }
}

TcpStore::TcpStore(std::unique_ptr<Connection> connection) : connection_(std::move(connection)) {}
TcpStore::~TcpStore() = default;

Status TcpStore::set(const std::string& key, const std::string& value, Deadline deadline) {
  Request request = request_for(Op::set, key);
  request.value = value;
  return connection_->call(std::move(request), deadline).status();
}

Result<std::string> TcpStore::get(const std::string& key, Deadline deadline) {
  Request request = request_for(Op::get, key);
  request.timeout_us = timeout_us(deadline);
  auto answer = connection_->call(std::move(request), deadline);
  if (!answer.ok()) return answer.status();
  return std::move(answer->value);
}

Status TcpStore::wait(std::span<const std::string> keys, Deadline deadline) {
  Request request;
  request.op = Op::wait;
  request.keys.assign(keys.begin(), keys.end());
  request.timeout_us = timeout_us(deadline);
  return connection_->call(std::move(request), deadline).status();
}

Result<std::int64_t> TcpStore::add(const std::string& key, std::int64_t amount, Deadline deadline) {
  Request request = request_for(Op::add, key);
  request.amount = amount;
  const auto answer = connection_->call(std::move(request), deadline);
  if (!answer.ok()) return answer.status();
  return answer->number;
}

Result<std::string> TcpStore::compare_set(const std::string& key, const std::optional<std::string>& expected,
                                          const std::string& desired, Deadline deadline) {
  Request request = request_for(Op::compare_set, key);
  request.expected = expected;
  request.value = desired;
  auto answer = connection_->call(std::move(request), deadline);
  if (!answer.ok()) return answer.status();
  return std::move(answer->value);
}

Result<bool> TcpStore::check(std::span<const std::string> keys, Deadline deadline) {
  Request request;
  request.op = Op::check;
  request.keys.assign(keys.begin(), keys.end());
  const auto answer = connection_->call(std::move(request), deadline);
  if (!answer.ok()) return answer.status();
  return answer->number != 0;
}

Result<bool> TcpStore::remove(const std::string& key, Deadline deadline) {
  const auto answer = connection_->call(request_for(Op::remove, key), deadline);
  if (!answer.ok()) return answer.status();
  return answer->number != 0;
}

Result<std::map<std::string, std::string>> TcpStore::list(const std::string& prefix, Deadline deadline) {
  auto answer = connection_->call(request_for(Op::list, prefix), deadline);
  if (!answer.ok()) return answer.status();
  return std::move(answer->pairs);
}

Result<std::size_t> TcpStore::append(const std::string& key, const std::string& value, Deadline deadline) {
  Request request = request_for(Op::append, key);
  request.value = value;
  const auto answer = connection_->call(std::move(request), deadline);
  if (!answer.ok()) return answer.status();
  return static_cast<std::size_t>(answer->number);
}

Result<bool> TcpStore::set_last_will(const std::string& key, const std::string& value, Deadline deadline) {
  Request request = request_for(Op::set_last_will, key);
  request.value = value;
  const auto answer = connection_->call(std::move(request), deadline);
  if (!answer.ok()) return answer.status();
  return answer->number != 0;
}

Status TcpStore::withdraw_last_will(const std::string& key, Deadline deadline) {
  return connection_->call(request_for(Op::withdraw_last_will, key), deadline).status();
}

std::string TcpStore::describe() const { return fmt::format("the store at {}", connection_->address()); }

}  // namespace lockstep
