#include "base/net/socket.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>

#include <thread>

#include "base/net/resolve.h"
#include "base/random.h"
#include "support/reserved_port.h"

namespace lockstep {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

SocketAddress loopback(const std::string& host = "127.0.0.1", std::uint16_t port = 0) {
  return resolve(host, port)->front();
}

struct Pair {
  UniqueFd listener;
  UniqueFd client;
  UniqueFd server;
};

Pair connected(const SocketAddress& where) {
  Pair pair;
  pair.listener = listen_on(where).value();
  pair.client = connect_to(local_address(pair.listener.get()).value(), Deadline::after(5s)).value();
  pair.server = accept_from(pair.listener.get(), Deadline::after(5s)).value();
  return pair;
}

std::vector<std::byte> pattern(std::size_t size) {
  std::vector<std::byte> bytes(size);
  for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(i * 131 >> 3);
  return bytes;
}

TEST(SocketAddress, PrintsAndRecognisesLoopback) {
  EXPECT_EQ(loopback("127.0.0.1", 29500).to_string(), "127.0.0.1:29500");
  EXPECT_EQ(loopback("[::1]", 29500).to_string(), "[::1]:29500");
  EXPECT_EQ(abstract_unix_address("lockstep").to_string(), "unix:@lockstep");
  for (const char* host : {"127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"}) {
    EXPECT_TRUE(loopback(host).is_loopback()) << host;
  }
  EXPECT_TRUE(abstract_unix_address("x").is_loopback());
  for (const char* host : {"0.0.0.0", "10.0.0.1", "::", "::ffff:10.0.0.1"}) {
    EXPECT_FALSE(loopback(host).is_loopback()) << host;
  }
}

TEST(Resolve, NamesTheHostThatCannotBeResolved) {
  const auto result = resolve("no-such-host.invalid", 1);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.status().code(), StatusCode::unavailable);
  EXPECT_THAT(result.status().message(), HasSubstr("no-such-host.invalid"));
}

TEST(ParseHostPort, AcceptsNamesAndBothFamilies) {
  EXPECT_EQ(parse_host_port("node7:29500")->host, "node7");
  EXPECT_EQ(parse_host_port("node7:29500")->port, 29500);
  EXPECT_EQ(parse_host_port("[fe80::1]:0")->host, "fe80::1");
}

TEST(ParseHostPort, NamesTheTextAndWhatIsWrong) {
  for (const char* text : {"", "node7", "node7:", ":1", "node7:65536", "node7:-1", "node7:1x", "fe80::1:5", "[::1:5"}) {
    const auto result = parse_host_port(text);
    ASSERT_FALSE(result.ok()) << text;
    EXPECT_EQ(result.status().code(), StatusCode::invalid_argument);
    EXPECT_THAT(result.status().message(), HasSubstr(std::string("'") + text + "'"));
  }
}

class StreamSockets : public ::testing::TestWithParam<const char*> {
 protected:
  static SocketAddress where() {
    const std::string name = GetParam();
    return name == "unix" ? abstract_unix_address("lockstep-test-" + random_hex(8)) : loopback(name);
  }
};

TEST_P(StreamSockets, CarryMoreThanTheKernelBuffers) {
  Pair pair = connected(where());
  const auto sent = pattern(std::size_t{8} << 20);
  std::thread sender([&] { EXPECT_TRUE(send_all(pair.client.get(), sent, Deadline::after(20s)).ok()); });
  std::vector<std::byte> received(sent.size());
  EXPECT_TRUE(receive_all(pair.server.get(), received, Deadline::after(20s)).ok());
  sender.join();
  EXPECT_EQ(received, sent);
}

TEST_P(StreamSockets, AreCloseOnExecAndNonBlocking) {
  Pair pair = connected(where());
  for (const int fd : {pair.listener.get(), pair.client.get(), pair.server.get()}) {
    EXPECT_TRUE(::fcntl(fd, F_GETFD) & FD_CLOEXEC);
    EXPECT_TRUE(::fcntl(fd, F_GETFL) & O_NONBLOCK);
  }
}

TEST_P(StreamSockets, ReportThatThePeerIsGone) {
  Pair pair = connected(where());
  pair.server.reset();
  std::byte byte{};
  EXPECT_EQ(receive_all(pair.client.get(), {&byte, 1}, Deadline::after(5s)).code(), StatusCode::peer_lost);
  // The first bytes may still be sent; eventually the kernel reports the closed connection.
  Status status;
  const auto bytes = pattern(1 << 16);
  for (int i = 0; i < 1000 && status.ok(); ++i) status = send_all(pair.client.get(), bytes, Deadline::after(5s));
  EXPECT_EQ(status.code(), StatusCode::peer_lost);
}

TEST_P(StreamSockets, KeepTheirDeadlines) {
  Pair pair = connected(where());
  std::byte byte{};
  EXPECT_EQ(receive_all(pair.client.get(), {&byte, 1}, Deadline::after(20ms)).code(), StatusCode::timed_out);
  EXPECT_EQ(accept_from(pair.listener.get(), Deadline::after(20ms)).status().code(), StatusCode::timed_out);
  const auto bytes = pattern(std::size_t{32} << 20);  // the peer never reads them
  EXPECT_EQ(send_all(pair.client.get(), bytes, Deadline::after(20ms)).code(), StatusCode::timed_out);
}

INSTANTIATE_TEST_SUITE_P(Families, StreamSockets, ::testing::Values("127.0.0.1", "::1", "unix"));

TEST(Listen, NamesThePortThatIsInUse) {
  const auto first = listen_on(loopback());
  ASSERT_TRUE(first.ok());
  const SocketAddress taken = local_address(first->get()).value();
  const auto second = listen_on(taken);
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.status().code(), StatusCode::already_exists);
  EXPECT_THAT(second.status().message(), HasSubstr(taken.to_string()));
}

TEST(Listen, RefusesAnAddressOfAnotherHost) {
  const auto result = listen_on(loopback("192.0.2.1"));
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.status().code(), StatusCode::invalid_argument);
}

TEST(Connect, IsUnavailableIfNoProcessListens) {
  const testing::ReservedPort reserved;
  const SocketAddress address = reserved.address();
  const auto result = connect_to(address, Deadline::after(5s));
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.status().code(), StatusCode::unavailable);
  EXPECT_THAT(result.status().message(), HasSubstr(address.to_string()));
  EXPECT_THAT(result.status().message(), HasSubstr("ECONNREFUSED"));
}

TEST(Connect, SetsNoDelayAtBothEnds) {
  Pair pair = connected(loopback());
  for (const int fd : {pair.client.get(), pair.server.get()}) {
    int value = 0;
    socklen_t size = sizeof(value);
    ASSERT_EQ(::getsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &value, &size), 0);
    EXPECT_EQ(value, 1);
  }
}

TEST(PeerCredentials, AreThoseOfTheOtherProcess) {
  Pair pair = connected(abstract_unix_address("lockstep-test-" + random_hex(8)));
  const auto credentials = peer_credentials(pair.server.get());
  ASSERT_TRUE(credentials.ok());
  EXPECT_EQ(credentials->pid, ::getpid());
  EXPECT_EQ(credentials->uid, ::getuid());
}

TEST(Random, DiffersEachTime) {
  EXPECT_EQ(random_hex(16).size(), 32U);
  EXPECT_NE(random_hex(16), random_hex(16));
}

}  // namespace
}  // namespace lockstep
