// Misbehaving clients of a store's server, which must not affect the others.
#include "store/tcp/tcp_store_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <atomic>
#include <thread>

#include "base/net/connect_channel.h"
#include "base/net/handshake.h"
#include "base/net/resolve.h"
#include "base/net/socket.h"
#include "base/random.h"
#include "store/tcp/store_protocol.h"
#include "store/tcp/tcp_store.h"

namespace lockstep {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

Deadline server_deadline() { return Deadline::after(30s); }

class TcpServer : public ::testing::Test {
 protected:
  void start() {
    options_.secret = secret_;
    server_ = TcpStoreServer::start(options_).value();
    address_ = resolve("127.0.0.1", server_->port())->front();
  }
  std::shared_ptr<Store> client() {
    return TcpStore::connect("127.0.0.1", server_->port(), secret_, server_deadline()).value();
  }
  // Connected, nothing sent.
  UniqueFd raw() { return connect_to(address_, server_deadline()).value(); }
  // Past the handshake.
  Channel authenticated() {
    return connect_channel(raw(), secret_, {.role = "store"}, EncryptionPolicy::all, server_deadline()).value();
  }
  // True once the server has closed this connection.
  static bool is_dropped(int fd, Deadline deadline = server_deadline()) {
    std::byte sink[4096];
    while (wait_ready(fd, POLLIN, deadline).ok()) {
      const ssize_t got = ::recv(fd, sink, sizeof(sink), 0);
      if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) return true;
    }
    return false;
  }
  void expect_alive() {
    const auto store = client();
    EXPECT_TRUE(store->set("alive", "yes", server_deadline()).ok());
    EXPECT_EQ(store->get("alive", server_deadline()).value(), "yes");
  }

  const Secret secret_{"server test"};
  StoreServerOptions options_;
  std::unique_ptr<TcpStoreServer> server_;
  SocketAddress address_;
};

TEST_F(TcpServer, ReportsThePortThatItGot) {
  start();
  EXPECT_NE(server_->port(), 0);
  EXPECT_EQ(server_->address(), address_.to_string());
}

TEST_F(TcpServer, ReportsThatThePortIsInUse) {
  start();
  options_.port = server_->port();
  const auto second = TcpStoreServer::start(options_);
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.status().code(), StatusCode::already_exists);
  EXPECT_THAT(second.status().message(), HasSubstr(address_.to_string()));
}

TEST_F(TcpServer, ServesAListeningSocketThatItIsGiven) {
  UniqueFd listener = listen_on(resolve("127.0.0.1", 0)->front()).value();
  const std::uint16_t port = local_address(listener.get())->port();
  options_.listening_fd = listener.release();
  start();
  EXPECT_EQ(server_->port(), port);
  expect_alive();
}

TEST_F(TcpServer, RefusesASocketThatDoesNotListen) {
  start();
  options_.listening_fd = raw().release();
  EXPECT_EQ(TcpStoreServer::start(options_).status().code(), StatusCode::invalid_argument);
}

TEST_F(TcpServer, BindsOtherAddressesOnlyWithASecret) {
  options_.host = "0.0.0.0";
  const auto open = TcpStoreServer::start(options_);
  ASSERT_FALSE(open.ok());
  EXPECT_EQ(open.status().code(), StatusCode::unauthenticated);
  EXPECT_THAT(open.status().message(), HasSubstr("LOCKSTEP_SECRET"));
  options_.listening_fd = listen_on(resolve("0.0.0.0", 0)->front())->release();
  EXPECT_EQ(TcpStoreServer::start(options_).status().code(), StatusCode::unauthenticated);
  options_.listening_fd = -1;
  options_.secret = secret_;
  EXPECT_TRUE(TcpStoreServer::start(options_).ok());
}

TEST_F(TcpServer, WorksOverIPv6) {
  options_.host = "::1";
  options_.secret = secret_;
  server_ = TcpStoreServer::start(options_).value();
  const auto store = TcpStore::connect("[::1]", server_->port(), secret_, server_deadline());
  ASSERT_TRUE(store.ok()) << store.status().to_string();
  EXPECT_EQ((*store)->add("n", 1, server_deadline()).value(), 1);
}

TEST_F(TcpServer, RefusesAWrongSecretAndNone) {
  start();
  for (const Secret& wrong : {Secret("wrong"), Secret()}) {
    const auto began = Deadline::Clock::now();
    const auto store = TcpStore::connect("127.0.0.1", server_->port(), wrong, server_deadline());
    ASSERT_FALSE(store.ok());
    EXPECT_EQ(store.status().code(), StatusCode::unauthenticated);
    EXPECT_THAT(store.status().message(), HasSubstr(address_.to_string()));
    EXPECT_LT(Deadline::Clock::now() - began, 10s) << "a refusal must not be retried";
  }
  expect_alive();
}

// A peer, or someone between the two ends, that leaves out encryption.
TEST_F(TcpServer, RefusesAClientThatDoesNotEncrypt) {
  start();
  const UniqueFd fd = raw();
  ASSERT_TRUE(send_all(fd.get(), handshake::format_hello({.identity = {.role = "store"}}), server_deadline()).ok());
  Bytes header(handshake::kHeaderBytes);
  ASSERT_TRUE(receive_all(fd.get(), header, server_deadline()).ok());
  Bytes payload(handshake::parse_header(header)->payload_bytes);
  ASSERT_TRUE(receive_all(fd.get(), payload, server_deadline()).ok());
  const auto refusal = handshake::parse_refused(payload);
  ASSERT_TRUE(refusal.ok());
  EXPECT_EQ(refusal->status.code(), StatusCode::unauthenticated);
  EXPECT_THAT(refusal->status.message(), HasSubstr("not encrypted"));
  EXPECT_TRUE(is_dropped(fd.get()));
  expect_alive();
}

TEST_F(TcpServer, RefusesAnotherVersionAndNamesBoth) {
  start();
  Bytes hello = handshake::format_hello({.identity = {.role = "store", .group = {}}});
  hello[4] = std::byte{7};
  const UniqueFd fd = raw();
  ASSERT_TRUE(send_all(fd.get(), hello, server_deadline()).ok());
  Bytes header(handshake::kHeaderBytes);
  ASSERT_TRUE(receive_all(fd.get(), header, server_deadline()).ok());
  Bytes payload(handshake::parse_header(header)->payload_bytes);
  ASSERT_TRUE(receive_all(fd.get(), payload, server_deadline()).ok());
  const auto refusal = handshake::parse_refused(payload);
  ASSERT_TRUE(refusal.ok());
  EXPECT_THAT(refusal->status.message(), HasSubstr("version 7"));
  EXPECT_THAT(refusal->status.message(), HasSubstr("version 3"));
}

TEST_F(TcpServer, RefusesConnectionsThatAreNotForAStore) {
  start();
  const Status status =
      connect_channel(raw(), secret_, {.role = "data"}, EncryptionPolicy::all, server_deadline()).status();
  EXPECT_EQ(status.code(), StatusCode::unauthenticated);

  // Without a secret the store sees what it refuses.
  StoreServerOptions open;
  const auto server = TcpStoreServer::start(open).value();
  UniqueFd fd = connect_to(resolve("127.0.0.1", server->port())->front(), server_deadline()).value();
  const Status refused =
      connect_channel(std::move(fd), Secret(), {.role = "data"}, EncryptionPolicy::all, server_deadline()).status();
  EXPECT_EQ(refused.code(), StatusCode::protocol_error);
  EXPECT_THAT(refused.message(), HasSubstr("this is a store"));
}

TEST_F(TcpServer, DropsGarbageBeforeAndAfterTheHandshake) {
  start();
  const auto good = client();
  for (int i = 0; i < 50; ++i) {
    Bytes garbage(1 + i * 37);
    fill_random(garbage);
    // At least the size of a header, so that it differs from a slow client.
    garbage.resize(std::max<std::size_t>(garbage.size(), 16), std::byte{0xEE});
    garbage[0] = std::byte{'G'};
    const UniqueFd before = raw();
    // The server may close while this is being sent.
    [[maybe_unused]] const Status sent = send_all(before.get(), garbage, server_deadline());
    EXPECT_TRUE(is_dropped(before.get()));
    garbage[4] = std::byte{0xFF};  // no such operation
    Channel after = authenticated();
    [[maybe_unused]] const Status sent_too = send_all(after, garbage, server_deadline());
    EXPECT_TRUE(is_dropped(after.fd()));
  }
  EXPECT_TRUE(good->set("still", "here", server_deadline()).ok());
}

TEST_F(TcpServer, DropsAMalformedBody) {
  start();
  Bytes frame = store_protocol::format_request({.id = 1, .keys = {"key"}, .value = "value", .expected = {}});
  frame[store_protocol::kHeaderBytes] = std::byte{0xFF};  // a key longer than the frame
  Channel fd = authenticated();
  ASSERT_TRUE(send_all(fd, frame, server_deadline()).ok());
  EXPECT_TRUE(is_dropped(fd.fd()));
  expect_alive();
}

TEST_F(TcpServer, DropsTheSameIdWaitingTwice) {
  start();
  const Bytes frame = store_protocol::format_request({.id = 1,
                                                      .op = store_protocol::Op::get,
                                                      .keys = {"never"},
                                                      .value = {},
                                                      .expected = {},
                                                      .timeout_us = 60'000'000});
  Channel fd = authenticated();
  ASSERT_TRUE(send_all(fd, frame, server_deadline()).ok());
  ASSERT_TRUE(send_all(fd, frame, server_deadline()).ok());
  EXPECT_TRUE(is_dropped(fd.fd()));
  expect_alive();
}

TEST_F(TcpServer, AnOversizeRequestIsRefusedAndItsBytesSkipped) {
  options_.limits.max_value_bytes = 1000;
  start();
  const auto store = client();
  EXPECT_EQ(store->set("big", std::string(std::size_t{8} << 20, 'x'), server_deadline()).code(),
            StatusCode::resource_exhausted);
  EXPECT_TRUE(store->set("small", "x", server_deadline()).ok()) << "the same connection still works";
}

TEST_F(TcpServer, DropsClientsThatNeverProveTheSecret) {
  options_.handshake_timeout = 200ms;
  start();
  const UniqueFd silent = raw();
  const UniqueFd half = raw();
  const Bytes hello = handshake::format_hello({.identity = {.role = "store", .group = {}}});
  ASSERT_TRUE(send_all(half.get(), std::span(hello).first(7), server_deadline()).ok());
  const UniqueFd challenged = raw();
  ASSERT_TRUE(send_all(challenged.get(), hello, server_deadline()).ok());
  expect_alive();
  for (const int fd : {silent.get(), half.get(), challenged.get()}) EXPECT_TRUE(is_dropped(fd));
}

TEST_F(TcpServer, ASlowClientDoesNotDelayOthers) {
  options_.handshake_timeout = 500ms;
  start();
  const UniqueFd slow = raw();
  const Bytes hello = handshake::format_hello({.identity = {.role = "store", .group = {}}});
  std::atomic<bool> done{false};
  std::thread loris([&] {
    for (const std::byte byte : hello) {
      if (!send_all(slow.get(), {&byte, 1}, server_deadline()).ok() || is_dropped(slow.get(), Deadline::after(30ms)))
        break;
    }
    EXPECT_TRUE(is_dropped(slow.get()));
    done = true;
  });
  const auto store = client();
  while (!done) EXPECT_TRUE(store->add("beat", 1, Deadline::after(5s)).ok());
  loris.join();
}

TEST_F(TcpServer, CapsConnections) {
  options_.limits.max_connections = 3;
  start();
  std::vector<std::shared_ptr<Store>> clients = {client(), client(), client()};
  const auto refused = TcpStore::connect("127.0.0.1", server_->port(), secret_, server_deadline());
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().code(), StatusCode::resource_exhausted);
  EXPECT_THAT(refused.status().message(), HasSubstr("max_connections = 3"));
  clients.pop_back();
  // The server sees the end of the third a moment later.
  Result<std::shared_ptr<TcpStore>> again = refused.status();
  for (const Deadline deadline = server_deadline(); !again.ok() && !deadline.expired();) {
    again = TcpStore::connect("127.0.0.1", server_->port(), secret_, server_deadline());
  }
  EXPECT_TRUE(again.ok());
}

TEST_F(TcpServer, AFloodOfUnauthenticatedConnectionsDoesNotKeepOutOthers) {
  options_.limits.max_unauthenticated_connections = 8;
  options_.handshake_timeout = 60s;  // the cap alone must protect the others
  start();
  std::vector<UniqueFd> flood;
  for (int i = 0; i < 24; ++i) flood.push_back(raw());
  expect_alive();
  std::size_t dropped = 0;
  for (const UniqueFd& fd : flood) dropped += is_dropped(fd.get(), Deadline::after(0s)) ? 1 : 0;
  EXPECT_GE(dropped, flood.size() - options_.limits.max_unauthenticated_connections);
}

TEST_F(TcpServer, AClientThatDoesNotReadItsAnswersIsThrottledAndOthersContinue) {
  start();
  const auto good = client();
  ASSERT_TRUE(good->set("large", std::string(std::size_t{1} << 20, 'x'), server_deadline()).ok());
  Channel deaf = authenticated();
  const Bytes get = store_protocol::format_request({.id = 1,
                                                    .op = store_protocol::Op::get,
                                                    .keys = {"large"},
                                                    .value = {},
                                                    .expected = {},
                                                    .timeout_us = 1'000'000});
  // 4 GiB of answers, if the server produced them.
  for (int i = 0; i < 4096; ++i) {
    if (!send_all(deaf, get, Deadline::after(20ms)).ok()) break;
  }
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(good->add("beat", 1, Deadline::after(5s)).ok());
}

TEST_F(TcpServer, ExecutesTheLastWillOfAClientThatEnds) {
  start();
  const auto watcher = client();
  auto dying = client();
  EXPECT_TRUE(dying->set_last_will("dead/1", "first", server_deadline()).value());
  EXPECT_TRUE(dying->set_last_will("dead/1", "gone", server_deadline()).value());
  EXPECT_TRUE(dying->set_last_will("dead/2", "gone too", server_deadline()).value());
  EXPECT_TRUE(dying->withdraw_last_will("dead/2", server_deadline()).ok());
  EXPECT_FALSE(watcher->check(std::vector<std::string>{"dead/1"}, server_deadline()).value());
  std::thread waiting([&] { EXPECT_EQ(watcher->get("dead/1", server_deadline()).value(), "gone"); });
  dying.reset();
  waiting.join();
  EXPECT_FALSE(watcher->check(std::vector<std::string>{"dead/2"}, server_deadline()).value());
}

TEST_F(TcpServer, TheEndOfAWaitingClientLeavesNothingBehind) {
  start();
  const auto good = client();
  for (int i = 0; i < 20; ++i) {
    Channel fd = authenticated();
    ASSERT_TRUE(send_all(fd,
                         store_protocol::format_request({.id = 1,
                                                         .op = store_protocol::Op::get,
                                                         .keys = {"awaited"},
                                                         .value = {},
                                                         .expected = {},
                                                         .timeout_us = 60'000'000}),
                         server_deadline())
                    .ok());
  }
  EXPECT_TRUE(good->set("awaited", "by no client", server_deadline()).ok());
  expect_alive();
}

}  // namespace
}  // namespace lockstep
