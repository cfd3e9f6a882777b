#include "base/net/auth.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "base/net/accept_channel.h"
#include "base/net/connect_channel.h"
#include "base/net/handshake.h"
#include "base/net/resolve.h"

namespace lockstep {
namespace {

using namespace std::chrono_literals;
using handshake::MessageType;
using ::testing::AllOf;
using ::testing::HasSubstr;

const ConnectionIdentity kIdentity{"data", "group-1", 2, 5, 1};

std::pair<UniqueFd, UniqueFd> socket_pair() {
  int fds[2];
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), 0);
  return {UniqueFd(fds[0]), UniqueFd(fds[1])};
}

// Runs the acceptor's side to its end.
Result<ConnectionIdentity> accept(UniqueFd fd, const Secret& secret, const IdentityCheck& check, Deadline deadline) {
  const AcceptRules rules{.secret = secret, .group = kIdentity.group, .keys = LinkKeyRing(secret, {kIdentity})};
  ChannelAcceptor acceptor(std::move(fd), rules, check);
  while (!acceptor.accepted()) {
    LOCKSTEP_RETURN_IF_ERROR(wait_ready(acceptor.fd(), POLLIN, deadline));
    LOCKSTEP_RETURN_IF_ERROR(acceptor.advance());
  }
  return acceptor.identity();
}

struct Outcome {
  Status connector;
  Result<ConnectionIdentity> acceptor;
};

Outcome shake(const Secret& connector, const Secret& acceptor, const IdentityCheck& check = {}) {
  auto [left, right] = socket_pair();
  Status connected;
  std::thread thread([&, &end = left] {
    connected =
        connect_channel(std::move(end), connector, kIdentity, EncryptionPolicy::all, Deadline::after(5s)).status();
  });
  auto accepted = accept(std::move(right), acceptor, check, Deadline::after(5s));
  thread.join();
  return {connected, std::move(accepted)};
}

TEST(Handshake, ProvesBothEndsAndCarriesTheIdentity) {
  for (const Secret& secret : {Secret("s3cret"), Secret()}) {
    const Outcome outcome = shake(secret, secret);
    EXPECT_TRUE(outcome.connector.ok()) << outcome.connector.to_string();
    ASSERT_TRUE(outcome.acceptor.ok()) << outcome.acceptor.status().to_string();
    EXPECT_EQ(*outcome.acceptor, kIdentity);
  }
}

TEST(Handshake, RefusesAnotherSecretOrNoneOnBothSides) {
  const std::pair<Secret, Secret> cases[] = {
      {Secret("a"), Secret("b")}, {Secret(), Secret("b")}, {Secret("a"), Secret()}};
  for (const auto& [connector, acceptor] : cases) {
    const Outcome outcome = shake(connector, acceptor);
    EXPECT_EQ(outcome.connector.code(), StatusCode::unauthenticated);
    EXPECT_THAT(outcome.connector.message(), HasSubstr("LOCKSTEP_SECRET"));
    EXPECT_FALSE(outcome.acceptor.ok());
  }
}

TEST(Handshake, ReportsTheReasonOfTheCheckToTheConnector) {
  const Outcome outcome = shake(Secret("s"), Secret("s"), [](const ConnectionIdentity& identity) {
    return Status(StatusCode::already_exists, "rank " + std::to_string(identity.from_rank) + " is connected already");
  });
  EXPECT_EQ(outcome.connector.code(), StatusCode::already_exists);
  EXPECT_THAT(outcome.connector.message(), HasSubstr("rank 2 is connected already"));
  EXPECT_EQ(outcome.acceptor.status().code(), StatusCode::already_exists);
}

TEST(Handshake, EndsAtTheDeadlineWithASilentPeer) {
  auto [left, right] = socket_pair();
  Channel channel(std::move(left));
  EXPECT_EQ(authenticate_as_connector(channel, Secret("s"), kIdentity, Deadline::after(20ms)).code(),
            StatusCode::timed_out);
}

// Drives the acceptor by hand, as an attacker would.
class Acceptor {
 public:
  explicit Acceptor(Secret secret, IdentityCheck check = {})
      : secret_(std::move(secret)), check_(std::move(check)), handshake_(secret_, kIdentity.group, check_) {}
  // One byte at a time: as slow as a peer can be.
  Bytes feed(const Bytes& message) {
    Bytes output;
    for (const std::byte byte : message) {
      if (handshake_.wanted() == 0) break;
      handshake_.feed({&byte, 1});
      const Bytes more = handshake_.take_output();
      output.insert(output.end(), more.begin(), more.end());
    }
    return output;
  }
  handshake::Challenge challenge(handshake::Hello hello) {
    hello.identity.group = handshake::group_tag(secret_, hello.nonce, hello.identity.group);
    const Bytes answer = feed(handshake::format_hello(hello));
    return handshake::parse_challenge(std::span(answer).subspan(handshake::kHeaderBytes)).value();
  }
  const AcceptorHandshake& state() const { return handshake_; }

 private:
  Secret secret_;
  IdentityCheck check_;
  AcceptorHandshake handshake_;
};

handshake::Mac proof_for(const Secret& secret, const handshake::Hello& hello, const handshake::Challenge& challenge) {
  return handshake::compute_mac(secret, handshake::Side::connector, hello.nonce, challenge.nonce, hello.identity);
}

TEST(AcceptorHandshake, AcceptsTheRightProofByteByByte) {
  Acceptor acceptor(Secret("s"));
  const handshake::Hello hello{.identity = kIdentity};
  const auto proof = proof_for(Secret("s"), hello, acceptor.challenge(hello));
  EXPECT_EQ(acceptor.feed(handshake::format_proof(proof)), handshake::format_accepted());
  EXPECT_EQ(acceptor.state().state(), AcceptorHandshake::State::accepted);
  EXPECT_EQ(acceptor.state().identity(), kIdentity);
}

TEST(AcceptorHandshake, RefusesAReplayedProof) {
  const handshake::Hello hello{.identity = kIdentity};
  Acceptor first(Secret("s"));
  const Bytes proof = handshake::format_proof(proof_for(Secret("s"), hello, first.challenge(hello)));
  Acceptor second(Secret("s"));
  second.challenge(hello);
  second.feed(proof);
  EXPECT_EQ(second.state().state(), AcceptorHandshake::State::refused);
  EXPECT_EQ(second.state().refusal().code(), StatusCode::unauthenticated);
}

TEST(AcceptorHandshake, RefusesItsOwnAnswerReflected) {
  const handshake::Hello hello{.identity = kIdentity};
  Acceptor acceptor(Secret("s"));
  const auto challenge = acceptor.challenge(hello);
  acceptor.feed(handshake::format_proof(challenge.mac));
  EXPECT_EQ(acceptor.state().refusal().code(), StatusCode::unauthenticated);
}

TEST(AcceptorHandshake, RefusesAProofForAnotherIdentity) {
  handshake::Hello hello{.identity = kIdentity};
  Acceptor acceptor(Secret("s"));
  const auto challenge = acceptor.challenge(hello);
  hello.identity.from_rank = 3;
  acceptor.feed(handshake::format_proof(proof_for(Secret("s"), hello, challenge)));
  EXPECT_EQ(acceptor.state().refusal().code(), StatusCode::unauthenticated);
}

TEST(AcceptorHandshake, NamesBothVersions) {
  Bytes hello = handshake::format_hello({.identity = kIdentity});
  hello[4] = std::byte{9};
  Acceptor acceptor(Secret("s"));
  const Bytes answer = acceptor.feed(hello);
  EXPECT_THAT(acceptor.state().refusal().message(), HasSubstr("wire version 9"));
  EXPECT_THAT(acceptor.state().refusal().message(), HasSubstr("version 3"));
  const auto refusal = handshake::parse_refused(std::span(answer).subspan(handshake::kHeaderBytes));
  ASSERT_TRUE(refusal.ok());
  EXPECT_EQ(refusal->status.code(), StatusCode::protocol_error);
}

TEST(AcceptorHandshake, RefusesAnotherGroupAndDoesNotDiscloseItsOwn) {
  handshake::Hello hello{.identity = kIdentity};
  hello.identity.group = handshake::group_tag(Secret("s"), hello.nonce, "group-2");
  const Bytes message = handshake::format_hello(hello);
  const std::string sent(reinterpret_cast<const char*>(message.data()), message.size());
  EXPECT_EQ(sent.find("group-"), std::string::npos);
  Acceptor acceptor(Secret("s"));
  const Bytes answer = acceptor.feed(message);
  EXPECT_EQ(acceptor.state().refusal().code(), StatusCode::unauthenticated);
  EXPECT_EQ(acceptor.state().refusal().message().find("group-1"), std::string::npos);
}

TEST(AcceptorHandshake, RefusesGarbageAndOversizeAtTheHeader) {
  Bytes garbage(64, std::byte{'G'});
  Acceptor first(Secret("s"));
  first.feed(garbage);
  EXPECT_EQ(first.state().refusal().code(), StatusCode::protocol_error);

  Bytes oversize = handshake::format_hello({.identity = kIdentity});
  oversize[11] = std::byte{0x7F};
  Acceptor second(Secret("s"));
  second.feed(oversize);
  EXPECT_EQ(second.state().refusal().code(), StatusCode::protocol_error);
  EXPECT_EQ(second.state().wanted(), 0U);
}

TEST(Connector, RefusesAnAcceptorThatReflectsItsOwnNonce) {
  auto [left, right] = socket_pair();
  Status status;
  std::thread connector([&, channel = Channel(std::move(left))]() mutable {
    status = authenticate_as_connector(channel, Secret("s"), kIdentity, Deadline::after(5s));
  });
  ConnectionIdentity on_the_wire = kIdentity;
  on_the_wire.group = std::string(handshake::kMacBytes, 'x');
  Bytes hello(handshake::format_hello({.identity = on_the_wire}).size());
  ASSERT_TRUE(receive_all(right.get(), hello, Deadline::after(5s)).ok());
  const auto parsed = handshake::parse_hello(std::span(hello).subspan(handshake::kHeaderBytes));
  ASSERT_TRUE(parsed.ok());
  // The best that an attacker without the secret can do: known nonces, a proof with another key.
  const handshake::Challenge challenge{parsed->nonce, handshake::compute_mac(Secret(), handshake::Side::acceptor,
                                                                             parsed->nonce, parsed->nonce, kIdentity)};
  ASSERT_TRUE(send_all(right.get(), handshake::format_challenge(challenge), Deadline::after(5s)).ok());
  connector.join();
  EXPECT_EQ(status.code(), StatusCode::unauthenticated);
}

TEST(Connector, ReportsARefusalThatWasSentBeforeItsHello) {
  auto [left, right] = socket_pair();
  ASSERT_TRUE(
      send_all(right.get(), format_refusal(Status(StatusCode::resource_exhausted, "too many")), Deadline::after(5s))
          .ok());
  right.reset();
  Channel channel(std::move(left));
  const Status status = authenticate_as_connector(channel, Secret("s"), kIdentity, Deadline::after(5s));
  EXPECT_EQ(status.code(), StatusCode::resource_exhausted);
  EXPECT_THAT(status.message(), HasSubstr("too many"));
}

class Environment : public ::testing::Test {
 protected:
  void SetUp() override { clear(); }
  void TearDown() override { clear(); }
  static void clear() {
    for (const char* name : {"LOCKSTEP_SECRET", "LOCKSTEP_SECRET_FILE", "LOCKSTEP_ALLOW_UNAUTHENTICATED"}) {
      ::unsetenv(name);
    }
  }
  static void set(const char* name, const std::string& value) { ::setenv(name, value.c_str(), 1); }
};

TEST_F(Environment, GivesTheSecretOrNone) {
  EXPECT_TRUE(Secret::from_environment()->empty());
  const std::string key = "0123456789abcdef0123456789abcdef";
  set("LOCKSTEP_SECRET", key);
  EXPECT_EQ(Secret::from_environment()->key(), key);
  set("LOCKSTEP_SECRET_FILE", "/x");
  EXPECT_THAT(Secret::from_environment().status().message(), HasSubstr("both"));
  ::unsetenv("LOCKSTEP_SECRET_FILE");
  set("LOCKSTEP_SECRET", "");
  EXPECT_EQ(Secret::from_environment().status().code(), StatusCode::invalid_argument);
}

TEST_F(Environment, ReadsASecretFileThatOnlyItsOwnerCanRead) {
  const auto path = std::filesystem::temp_directory_path() / ("lockstep-secret-" + std::to_string(::getpid()));
  const std::string key = "fedcba9876543210fedcba9876543210";
  std::ofstream(path) << key << "\n";
  set("LOCKSTEP_SECRET_FILE", path);
  ::chmod(path.c_str(), 0600);
  EXPECT_EQ(Secret::from_environment()->key(), key);
  ::chmod(path.c_str(), 0644);
  EXPECT_THAT(Secret::from_environment().status().message(), HasSubstr("0644"));
  std::filesystem::remove(path);
  EXPECT_THAT(Secret::from_environment().status().message(), HasSubstr(path.string()));
}

TEST_F(Environment, RefusesASecretThatCanBeGuessed) {
  set("LOCKSTEP_SECRET", std::string(31, 'a'));
  const Status status = Secret::from_environment().status();
  EXPECT_EQ(status.code(), StatusCode::invalid_argument);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("31 characters"), HasSubstr("od -An -N32 -tx1 /dev/urandom")));
  ::unsetenv("LOCKSTEP_SECRET");
  const auto path = std::filesystem::temp_directory_path() / ("lockstep-secret-" + std::to_string(::getpid()));
  std::ofstream(path) << "open sesame\n";
  ::chmod(path.c_str(), 0600);
  set("LOCKSTEP_SECRET_FILE", path);
  EXPECT_THAT(Secret::from_environment().status().message(), HasSubstr("11 characters"));
  std::filesystem::remove(path);
}

TEST_F(Environment, TheSecretIsTakenFromTheEnvironmentAndKeptForLaterCalls) {
  const std::string key = "0123456789abcdef0123456789abcdef";
  set("LOCKSTEP_SECRET", key);
  EXPECT_EQ(Secret::from_environment()->key(), key);
  const std::string left = std::getenv("LOCKSTEP_SECRET");
  EXPECT_EQ(left, "(taken by process " + std::to_string(::getpid()) + ")");
  EXPECT_EQ(Secret::from_environment()->key(), key) << "for the next group";
  ::unsetenv("LOCKSTEP_SECRET");
  EXPECT_TRUE(Secret::from_environment()->empty());
  set("LOCKSTEP_SECRET", "(taken by process 1)");
  EXPECT_THAT(Secret::from_environment().status().message(), HasSubstr("set LOCKSTEP_SECRET_FILE"));
  set("LOCKSTEP_SECRET", "another0another0another0another0");
  EXPECT_EQ(Secret::from_environment()->key(), "another0another0another0another0");
}

TEST_F(Environment, WithoutASecretOnlyLoopbackMayBeBound) {
  const SocketAddress anywhere = resolve("0.0.0.0", 1)->front();
  EXPECT_TRUE(may_bind(resolve("127.0.0.1", 1)->front(), Secret()).ok());
  EXPECT_TRUE(may_bind(anywhere, Secret("s")).ok());
  EXPECT_EQ(may_bind(anywhere, Secret()).code(), StatusCode::unauthenticated);
  set("LOCKSTEP_ALLOW_UNAUTHENTICATED", "1");
  EXPECT_TRUE(may_bind(anywhere, Secret()).ok());
}

}  // namespace
}  // namespace lockstep
