#include "store/tcp/tcp_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>

#include <atomic>
#include <thread>

#include "base/net/accept_channel.h"
#include "base/net/resolve.h"
#include "base/net/socket.h"
#include "store/tcp/tcp_store_server.h"
#include "support/reserved_port.h"

namespace lockstep {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

Deadline client_deadline() { return Deadline::after(60s); }

std::unique_ptr<TcpStoreServer> start(UniqueFd listener = {}) {
  StoreServerOptions options;
  options.listening_fd = listener.release();
  return TcpStoreServer::start(options).value();
}

TEST(TcpStoreConnect, WaitsForAServerThatStartsLater) {
  testing::ReservedPort reserved;
  const std::uint16_t port = reserved.port();
  std::atomic<bool> connecting{false};
  std::thread client([&] {
    connecting = true;
    const auto store = TcpStore::connect("127.0.0.1", port, Secret(), client_deadline());
    ASSERT_TRUE(store.ok()) << store.status().to_string();
    EXPECT_EQ((*store)->add("n", 1, client_deadline()).value(), 1);
  });
  while (!connecting) std::this_thread::yield();
  EXPECT_FALSE(TcpStore::connect("127.0.0.1", port, Secret(), Deadline::after(50ms)).ok());
  auto server = start(reserved.listen());
  client.join();
}

TEST(TcpStoreConnect, ReportsTheAddressOnWhichNoProcessIsListening) {
  const testing::ReservedPort reserved;
  const std::uint16_t port = reserved.port();
  const auto store = TcpStore::connect("127.0.0.1", port, Secret(), Deadline::after(50ms));
  ASSERT_FALSE(store.ok());
  EXPECT_EQ(store.status().code(), StatusCode::unavailable);
  EXPECT_THAT(store.status().message(), HasSubstr("127.0.0.1:" + std::to_string(port)));
  EXPECT_THAT(store.status().message(), HasSubstr("ECONNREFUSED"));
}

TEST(TcpStoreConnect, ReportsTheHostThatCannotBeResolved) {
  const auto store = TcpStore::connect("no-such-host.invalid", 1, Secret(), client_deadline());
  ASSERT_FALSE(store.ok());
  EXPECT_EQ(store.status().code(), StatusCode::unavailable);
  EXPECT_THAT(store.status().message(), HasSubstr("cannot resolve host 'no-such-host.invalid'"));
}

TEST(TcpStoreConnect, GivesUpOnAServerThatIsNotAStore) {
  UniqueFd listener = listen_on(resolve("127.0.0.1", 0)->front()).value();
  const std::uint16_t port = local_address(listener.get())->port();
  std::thread other([&] {
    const auto fd = accept_from(listener.get(), client_deadline());
    const std::string banner = "HTTP/1.1 400 Bad Request\r\n\r\n";
    ASSERT_TRUE(fd.ok());
    EXPECT_TRUE(send_all(fd->get(), std::as_bytes(std::span(banner)), client_deadline()).ok());
    std::byte sink[1024];
    while (receive_all(fd->get(), sink, client_deadline()).ok()) continue;
  });
  const auto store = TcpStore::connect("127.0.0.1", port, Secret(), client_deadline());
  EXPECT_EQ(store.status().code(), StatusCode::protocol_error);
  other.join();
}

TEST(TcpStore, ReportsTheServerThatIsLost) {
  auto server = start();
  const std::string address = server->address();
  const auto store = TcpStore::connect("127.0.0.1", server->port(), Secret(), client_deadline()).value();
  std::vector<std::thread> waiting;
  for (int i = 0; i < 4; ++i) {
    waiting.emplace_back([&] {
      const auto result = store->get("never", client_deadline());
      EXPECT_EQ(result.status().code(), StatusCode::peer_lost);
      EXPECT_THAT(result.status().message(), HasSubstr(address));
    });
  }
  EXPECT_TRUE(store->set("x", "", client_deadline()).ok());
  server.reset();
  for (auto& thread : waiting) thread.join();
  EXPECT_EQ(store->set("x", "", client_deadline()).code(), StatusCode::peer_lost);
}

TEST(TcpStore, GivesUpOnAServerThatDoesNotAnswer) {
  UniqueFd listener = listen_on(resolve("127.0.0.1", 0)->front()).value();
  const std::uint16_t port = local_address(listener.get())->port();
  const AcceptRules rules;
  Channel mute;
  std::thread server([&] {
    ChannelAcceptor acceptor(accept_from(listener.get(), client_deadline()).value(), rules, {});
    while (!acceptor.accepted()) {
      ASSERT_TRUE(wait_ready(acceptor.fd(), POLLIN, client_deadline()).ok());
      ASSERT_TRUE(acceptor.advance().ok());
    }
    mute = acceptor.take();
  });
  const auto store = TcpStore::connect("127.0.0.1", port, Secret(), client_deadline());
  server.join();
  ASSERT_TRUE(store.ok());
  const auto began = Deadline::Clock::now();
  const auto result = (*store)->get("key", Deadline::after(50ms));
  EXPECT_EQ(result.status().code(), StatusCode::timed_out);
  EXPECT_THAT(result.status().message(), HasSubstr("did not answer"));
  EXPECT_THAT(result.status().message(), HasSubstr("'key'"));
  EXPECT_LT(Deadline::Clock::now() - began, 10s);
}

TEST(TcpStore, ManyThreadsShareOneConnection) {
  auto server = start();
  const auto store = TcpStore::connect("127.0.0.1", server->port(), Secret(), client_deadline()).value();
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&, i] {
      for (int round = 0; round < 50; ++round) {
        const std::string key = std::to_string(i) + "/" + std::to_string(round);
        const std::string next = std::to_string((i + 1) % 8) + "/" + std::to_string(round);
        EXPECT_TRUE(store->set(key, key, client_deadline()).ok());
        EXPECT_EQ(store->get(next, client_deadline()).value(), next);
        EXPECT_EQ(store->get("none", Deadline::after(0s)).status().code(), StatusCode::timed_out);
      }
    });
  }
  for (auto& thread : threads) thread.join();
}

// A rendezvous of a large job: all connect at once, all wait for the last one.
TEST(TcpStore, AThousandClientsMeetInOneBarrier) {
  constexpr int kClients = 1000;
  rlimit files{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &files), 0);
  if (files.rlim_cur < 2 * kClients + 100) {
    GTEST_SKIP() << "needs " << 2 * kClients + 100 << " open files; the limit (ulimit -n) is " << files.rlim_cur;
  }
  StoreServerOptions options;
  options.secret = Secret("barrier");
  const auto server = TcpStoreServer::start(options).value();
  const auto began = Deadline::Clock::now();
  std::atomic<int> passed{0};
  std::vector<std::thread> clients;
  for (int i = 0; i < kClients; ++i) {
    clients.emplace_back([&] {
      const auto store = TcpStore::connect("127.0.0.1", server->port(), options.secret, client_deadline());
      ASSERT_TRUE(store.ok()) << store.status().to_string();
      const auto arrived = (*store)->add("arrived", 1, client_deadline());
      ASSERT_TRUE(arrived.ok()) << arrived.status().to_string();
      if (*arrived == kClients) {
        ASSERT_TRUE((*store)->set("go", "", client_deadline()).ok());
      }
      const Status went = (*store)->wait(std::vector<std::string>{"go"}, client_deadline());
      ASSERT_TRUE(went.ok()) << went.to_string();
      ++passed;
    });
  }
  for (auto& client : clients) client.join();
  EXPECT_EQ(passed, kClients);
  const std::chrono::duration<double, std::milli> took = Deadline::Clock::now() - began;
  RecordProperty("milliseconds", static_cast<int>(took.count()));
  std::printf("%d clients connected, authenticated and met in %.0f ms\n", kClients, took.count());
}

}  // namespace
}  // namespace lockstep
