#include "base/net/channel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <numeric>
#include <optional>
#include <thread>
#include <vector>

#include "base/net/accept_channel.h"
#include "base/net/connect_channel.h"
#include "base/net/resolve.h"
#include "base/net/socket.h"

namespace lockstep {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

const ConnectionIdentity kLink{.role = "data", .group = "group#1", .from_rank = 2, .to_rank = 1, .index = 0};
const Secret kChannelSecret("0123456789abcdef0123456789abcdef");

Deadline soon() { return Deadline::after(10s); }

std::pair<UniqueFd, UniqueFd> tcp_pair() {
  const UniqueFd listener = value_or_throw(listen_on(resolve("127.0.0.1", 0)->front()));
  UniqueFd left = value_or_throw(connect_to(value_or_throw(local_address(listener.get())), soon()));
  return {std::move(left), value_or_throw(accept_from(listener.get(), soon()))};
}

struct End {
  Secret secret = kChannelSecret;
  ConnectionIdentity link = kLink;
  EncryptionPolicy policy = EncryptionPolicy::all;
};

Result<Channel> accept_on(UniqueFd fd, const End& end) {
  const AcceptRules rules{
      .secret = end.secret, .group = end.link.group, .policy = end.policy, .keys = LinkKeyRing(end.secret, {end.link})};
  ChannelAcceptor acceptor(std::move(fd), rules, [&](const ConnectionIdentity& identity) {
    return identity == end.link ? Status() : Status(StatusCode::invalid_argument, "not the expected link");
  });
  while (!acceptor.accepted()) {
    LOCKSTEP_RETURN_IF_ERROR(wait_ready(acceptor.fd(), POLLIN, soon()));
    LOCKSTEP_RETURN_IF_ERROR(acceptor.advance());
  }
  return acceptor.take();
}

struct Opened {
  Result<Channel> connector = Status(StatusCode::internal, "not run");
  Result<Channel> acceptor = Status(StatusCode::internal, "not run");
};

Opened open_on(UniqueFd left, UniqueFd right, const End& connector, const End& acceptor) {
  Opened outcome;
  std::thread thread([&] {
    outcome.connector = connect_channel(std::move(left), connector.secret, connector.link, connector.policy, soon());
  });
  outcome.acceptor = accept_on(std::move(right), acceptor);
  thread.join();
  return outcome;
}

Opened open(const End& connector = {}, const End& acceptor = {}) {
  auto [left, right] = tcp_pair();
  return open_on(std::move(left), std::move(right), connector, acceptor);
}

std::vector<std::byte> numbered(std::size_t size) {
  std::vector<std::byte> bytes(size);
  for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(i * 131 + i / 251);
  return bytes;
}

TEST(Channel, IsEncryptedBetweenHostsIfThereIsASecret) {
  Opened outcome = open();
  ASSERT_TRUE(outcome.connector.ok()) << outcome.connector.status().to_string();
  ASSERT_TRUE(outcome.acceptor.ok()) << outcome.acceptor.status().to_string();
  EXPECT_TRUE(outcome.connector->encrypted());
  EXPECT_TRUE(outcome.acceptor->encrypted());
}

TEST(Channel, IsPlainWithoutASecretAndOverUnixSockets) {
  Opened without = open({.secret = Secret()}, {.secret = Secret()});
  ASSERT_TRUE(without.connector.ok() && without.acceptor.ok());
  EXPECT_FALSE(without.connector->encrypted());

  int fds[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), 0);
  Opened local = open_on(UniqueFd(fds[0]), UniqueFd(fds[1]), {}, {});
  ASSERT_TRUE(local.connector.ok() && local.acceptor.ok());
  EXPECT_FALSE(local.acceptor->encrypted());
}

TEST(Channel, OnlyDataIsPlainIfThePolicyIsControl) {
  const End end{.policy = EncryptionPolicy::control};
  Opened data = open(end, end);
  ASSERT_TRUE(data.connector.ok() && data.acceptor.ok()) << data.connector.status().to_string();
  EXPECT_FALSE(data.connector->encrypted());
  End control = end;
  control.link.role = "control";
  Opened other = open(control, control);
  ASSERT_TRUE(other.connector.ok() && other.acceptor.ok());
  EXPECT_TRUE(other.connector->encrypted());
}

TEST(Channel, EndsThatDisagreeOnEncryptionAreToldWhichVariableDiffers) {
  const End plain{.policy = EncryptionPolicy::control};
  for (const auto& outcome : {open(plain, {}), open({}, plain)}) {
    EXPECT_EQ(outcome.connector.status().code(), StatusCode::unauthenticated);
    EXPECT_THAT(outcome.connector.status().message(), HasSubstr("LOCKSTEP_ENCRYPT"));
    EXPECT_THAT(outcome.acceptor.status().message(), HasSubstr("LOCKSTEP_ENCRYPT"));
  }
}

TEST(Channel, RefusesAnotherSecretOrNone) {
  for (const auto& [connector, acceptor] :
       {std::pair(Secret("a"), Secret("b")), {Secret(), Secret("b")}, {Secret("a"), Secret()}}) {
    ConnectionIdentity link = kLink;
    link.role = "control";
    const Opened outcome = open({.secret = connector, .link = link}, {.secret = acceptor, .link = link});
    EXPECT_EQ(outcome.connector.status().code(), StatusCode::unauthenticated);
    EXPECT_THAT(outcome.connector.status().message(), HasSubstr("LOCKSTEP_SECRET"));
    EXPECT_FALSE(outcome.acceptor.ok());
  }
}

TEST(Channel, AKeyOpensOneLinkOnly) {
  const auto differs = [](auto change) {
    End other;
    change(other.link);
    const Opened outcome = open(other, {});
    EXPECT_EQ(outcome.connector.status().code(), StatusCode::unauthenticated);
    EXPECT_EQ(outcome.acceptor.status().code(), StatusCode::unauthenticated);
  };
  differs([](ConnectionIdentity& link) { link.role = "control"; });
  differs([](ConnectionIdentity& link) { link.group = "group#2"; });
  differs([](ConnectionIdentity& link) { link.from_rank = 3; });
  differs([](ConnectionIdentity& link) { link.to_rank = 0; });
  differs([](ConnectionIdentity& link) { link.index = 1; });
}

TEST(Channel, CarriesLargeTransfersInBothDirectionsAtOnce) {
  Opened outcome = open();
  ASSERT_TRUE(outcome.connector.ok() && outcome.acceptor.ok());
  const auto sent = numbered((std::size_t{8} << 20) + 12345);
  std::vector<std::byte> there(sent.size());
  std::vector<std::byte> back(sent.size());
  // Four threads on two channels: each is sent to and received from at once.
  std::thread first([&] { EXPECT_TRUE(send_all(*outcome.connector, sent, soon()).ok()); });
  std::thread second([&] { EXPECT_TRUE(send_all(*outcome.acceptor, sent, soon()).ok()); });
  std::thread third([&] { EXPECT_TRUE(receive_all(*outcome.connector, back, soon()).ok()); });
  EXPECT_TRUE(receive_all(*outcome.acceptor, there, soon()).ok());
  first.join();
  second.join();
  third.join();
  EXPECT_EQ(there, sent);
  EXPECT_EQ(back, sent);
}

// Ranges of all sizes, and calls that stop when the socket is full.
TEST(Channel, MovesRangesInPartsWithoutBlocking) {
  Opened outcome = open();
  ASSERT_TRUE(outcome.connector.ok() && outcome.acceptor.ok());
  const int small = 8 << 10;
  ::setsockopt(outcome.connector->fd(), SOL_SOCKET, SO_SNDBUF, &small, sizeof(small));
  auto sent = numbered(3'000'000);
  std::vector<std::byte> received(sent.size());
  std::size_t at_sender = 0;
  std::size_t at_receiver = 0;
  const auto ranges_of = [](std::vector<std::byte>& bytes, std::size_t from, std::size_t step) {
    std::vector<iovec> ranges;
    for (std::size_t size = 1; from < bytes.size() && ranges.size() < 16; size = size * step + 1) {
      const std::size_t part = std::min(size, bytes.size() - from);
      ranges.push_back({bytes.data() + from, part});
      from += part;
    }
    return ranges;
  };
  int blocked = 0;
  for (const Deadline deadline = soon(); at_receiver < sent.size() && !deadline.expired();) {
    if (at_sender < sent.size()) {
      const IoResult result = outcome.connector->send(ranges_of(sent, at_sender, 3));
      ASSERT_EQ(result.error, 0);
      blocked += result.would_block ? 1 : 0;
      at_sender += result.bytes;
    }
    const IoResult result = outcome.acceptor->receive(ranges_of(received, at_receiver, 2));
    ASSERT_EQ(result.error, 0);
    at_receiver += result.bytes;
  }
  EXPECT_EQ(received, sent);
  EXPECT_GT(blocked, 0);
}

TEST(Channel, TheEndOfThePeerIsReportedAfterWhatItSent) {
  Opened outcome = open();
  ASSERT_TRUE(outcome.connector.ok() && outcome.acceptor.ok());
  const auto sent = numbered(100'000);
  ASSERT_TRUE(send_all(*outcome.connector, sent, soon()).ok());
  outcome.connector->reset();
  std::vector<std::byte> received(sent.size());
  ASSERT_TRUE(receive_all(*outcome.acceptor, received, soon()).ok());
  EXPECT_EQ(received, sent);
  std::byte more{};
  EXPECT_EQ(receive_all(*outcome.acceptor, std::span(&more, 1), soon()).code(), StatusCode::peer_lost);
}

// Two records arrive at once, and the second one is damaged: nothing more comes that would wake a thread that polls.
TEST(Channel, DamageIsReportedByPollEvenAfterBytesThatWereRight) {
  auto [left, proxy_left] = tcp_pair();
  auto [proxy_right, right] = tcp_pair();
  std::atomic<bool> holds = false;
  std::jthread back([from = proxy_right.get(), to = proxy_left.get()] {
    std::array<std::byte, 4096> bytes;
    for (ssize_t got = 1; got > 0;) {
      if (!wait_ready(from, POLLIN, soon()).ok()) return;
      got = ::recv(from, bytes.data(), bytes.size(), 0);
      if (got > 0 && !send_all(to, std::span(bytes).first(static_cast<std::size_t>(got)), soon()).ok()) return;
    }
    ::shutdown(to, SHUT_WR);
  });
  std::jthread there([from = proxy_left.get(), to = proxy_right.get(), &holds] {
    std::array<std::byte, 4096> bytes;
    while (!holds) {
      if (!wait_ready(from, POLLIN, Deadline::after(10ms)).ok()) continue;
      const ssize_t got = ::recv(from, bytes.data(), bytes.size(), 0);
      if (got <= 0 || !send_all(to, std::span(bytes).first(static_cast<std::size_t>(got)), soon()).ok()) return;
    }
  });
  Opened outcome = open_on(std::move(left), std::move(right), {}, {});
  holds = true;
  ASSERT_TRUE(outcome.connector.ok() && outcome.acceptor.ok());
  there.join();
  const auto sent = numbered(100);
  ASSERT_TRUE(send_all(*outcome.connector, sent, soon()).ok());
  ASSERT_TRUE(send_all(*outcome.connector, sent, soon()).ok());
  constexpr std::size_t kRecord = 5 + 100 + 1 + 16;  // header, contents, type, tag
  std::array<std::byte, 2 * kRecord> records;
  ASSERT_TRUE(receive_all(proxy_left.get(), records, soon()).ok());
  records[kRecord + 20] ^= std::byte{1};
  ASSERT_TRUE(send_all(proxy_right.get(), records, soon()).ok());

  ASSERT_TRUE(wait_ready(outcome.acceptor->fd(), POLLIN, soon()).ok());
  std::vector<std::byte> received(2 * sent.size());
  IoResult result = outcome.acceptor->receive(received);
  EXPECT_EQ(result.bytes, sent.size());
  ASSERT_TRUE(wait_ready(outcome.acceptor->fd(), POLLIN, Deadline::after(5s)).ok()) << "poll(2) must report the damage";
  result = outcome.acceptor->receive(received);
  EXPECT_EQ(result.error, EBADMSG);
  // The sender learns of it too, although its side of the stream is whole.
  ASSERT_TRUE(wait_ready(outcome.connector->fd(), POLLIN, Deadline::after(5s)).ok()) << "the peer must be told";
  EXPECT_EQ(outcome.connector->receive(received).error, EBADMSG);
}

TEST(Channel, AResetIsAnError) {
  Opened outcome = open();
  ASSERT_TRUE(outcome.connector.ok() && outcome.acceptor.ok());
  const linger abort_on_close{.l_onoff = 1, .l_linger = 0};
  ::setsockopt(outcome.connector->fd(), SOL_SOCKET, SO_LINGER, &abort_on_close, sizeof(abort_on_close));
  outcome.connector->reset();
  std::byte byte{};
  EXPECT_EQ(receive_all(*outcome.acceptor, std::span(&byte, 1), soon()).code(), StatusCode::peer_lost);
}

TEST(Channel, AConnectorRefusesAPeerThatAnswersInTheClear) {
  auto [left, right] = tcp_pair();
  std::thread impostor([&] {
    std::array<std::byte, 64> hello;
    EXPECT_TRUE(receive_all(right.get(), hello, soon()).ok());
    EXPECT_TRUE(send_all(right.get(), format_refusal(Status(StatusCode::aborted, "come in the clear")), soon()).ok());
  });
  const auto channel = connect_channel(std::move(left), kChannelSecret, kLink, EncryptionPolicy::all, soon());
  impostor.join();
  EXPECT_EQ(channel.status().code(), StatusCode::unauthenticated);
  EXPECT_THAT(channel.status().message(), HasSubstr("without encryption"));
}

TEST(Channel, AConnectorRecognisesAnotherProgram) {
  auto [left, right] = tcp_pair();
  ASSERT_TRUE(send_all(right.get(), numbered(100), soon()).ok());
  const auto channel = connect_channel(std::move(left), kChannelSecret, kLink, EncryptionPolicy::all, soon());
  EXPECT_EQ(channel.status().code(), StatusCode::protocol_error);
}

TEST(Channel, AConnectorDoesNotWaitForASilentPeerBeyondTheDeadline) {
  auto [left, right] = tcp_pair();
  const auto channel =
      connect_channel(std::move(left), kChannelSecret, kLink, EncryptionPolicy::all, Deadline::after(50ms));
  EXPECT_EQ(channel.status().code(), StatusCode::timed_out);
}

}  // namespace
}  // namespace lockstep
