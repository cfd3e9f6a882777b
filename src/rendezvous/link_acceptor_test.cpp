#include "rendezvous/link_acceptor.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>

#include "base/net/resolve.h"
#include "base/random.h"
#include "rendezvous/process_identity.h"
#include "support/no_descriptors.h"
#include "support/process_resources.h"

namespace lockstep {
namespace {

using std::chrono::milliseconds;
using testing::kSanitizerNeedsDescriptors;
using testing::NoDescriptors;

// Rank 0 of two accepts; the test is rank 1.
class LinkAcceptorTest : public ::testing::Test {
 protected:
  LinkAcceptorTest() {
    connecting_.group_id = "group";
    connecting_.secret = Secret("secret");
    for (int rank = 0; rank < 2; ++rank) connecting_.members.push_back(claim_rank(rank, 2, ""));
    address_ = abstract_unix_address(connecting_.members[0].unix_name);
    const auto accepting = std::make_shared<LinkContext>(connecting_);
    acceptor_ = value_or_throw(LinkAcceptor::start(accepting, value_or_throw(listen_on(address_))));
    connecting_.rank = 1;
  }
  static Deadline soon() { return Deadline::after(std::chrono::seconds(10)); }
  UniqueFd connect() const { return value_or_throw(connect_to(address_, soon())); }
  // As seen by rank 0.
  const std::vector<LinkName> link_ = {{1, kControlRole, 0}};

  LinkContext connecting_;
  SocketAddress address_;
  std::unique_ptr<LinkAcceptor> acceptor_;
};

TEST_F(LinkAcceptorTest, ALinkIsThereOnceItIsIntroduced) {
  Channel link = value_or_throw(introduce(connect(), {0, kControlRole, 0}, connecting_, soon()));
  ASSERT_TRUE(acceptor_->wait_for(link_, soon()).ok());
  Channel taken = acceptor_->take(link_[0]);
  const std::byte letter{'x'};
  ASSERT_TRUE(send_all(link, std::span(&letter, 1), soon()).ok());
  std::byte received{};
  ASSERT_TRUE(receive_all(taken, std::span(&received, 1), soon()).ok());
  EXPECT_EQ(received, letter) << "the confirmation must not be left in the link, nor its first byte be lost";
}

TEST_F(LinkAcceptorTest, AGroupWaitsForDescriptors) {
  if (kSanitizerNeedsDescriptors) GTEST_SKIP() << "the sanitizer needs descriptors itself";
  UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  {
    const NoDescriptors none;
    ASSERT_EQ(::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address_.storage), address_.length), 0);
    EXPECT_EQ(acceptor_->wait_for(link_, Deadline::after(milliseconds(200))).code(), StatusCode::timed_out);
    EXPECT_EQ(acceptor_->accept_error().code(), StatusCode::resource_exhausted) << "the error at the deadline says why";
  }
  const auto link = introduce(std::move(fd), {0, kControlRole, 0}, connecting_, soon());
  ASSERT_TRUE(link.ok());
  EXPECT_TRUE(acceptor_->wait_for(link_, soon()).ok());
  EXPECT_TRUE(acceptor_->accept_error().ok());
}

// poll(2) fails if it gets more descriptors than a process may open.
TEST_F(LinkAcceptorTest, AcceptsAgainAfterPollHasFailed) {
  if (kSanitizerNeedsDescriptors) GTEST_SKIP() << "the sanitizer needs descriptors itself";
  UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit low = before;
  low.rlim_cur = 1;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &low), 0);
  EXPECT_EQ(::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address_.storage), address_.length), 0);
  EXPECT_EQ(acceptor_->wait_for(link_, Deadline::after(milliseconds(300))).code(), StatusCode::timed_out);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  const auto link = introduce(std::move(fd), {0, kControlRole, 0}, connecting_, soon());
  ASSERT_TRUE(link.ok()) << link.status().to_string();
  EXPECT_TRUE(acceptor_->wait_for(link_, soon()).ok());
}

// The same acceptor, attacked over TCP.
class LinkAcceptorOverTcp : public LinkAcceptorTest {
 protected:
  LinkAcceptorOverTcp() {
    UniqueFd listener = value_or_throw(listen_on(resolve("127.0.0.1", 0)->front()));
    address_ = value_or_throw(local_address(listener.get()));
    acceptor_->add_listener(std::move(listener));
  }
  UniqueFd connect_from(const char* source) const {
    UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const SocketAddress from = resolve(source, 0)->front();
    EXPECT_EQ(::bind(fd.get(), reinterpret_cast<const sockaddr*>(&from.storage), from.length), 0);
    EXPECT_EQ(::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address_.storage), address_.length), 0);
    return fd;
  }
  static bool was_closed(int fd) {
    pollfd entry{.fd = fd, .events = POLLIN, .revents = 0};
    return ::poll(&entry, 1, 0) > 0;
  }
};

TEST_F(LinkAcceptorOverTcp, AFloodOfStrangersDoesNotKeepOutARank) {
  const std::size_t budget = StrangerBudget::limits_of_process(1024).listener;
  std::vector<UniqueFd> flood;
  for (std::size_t i = 0; i < budget + 50; ++i) flood.push_back(connect());
  const auto link = make_link(address_, {0, kControlRole, 0}, connecting_, soon());
  ASSERT_TRUE(link.ok()) << link.status().to_string();
  EXPECT_TRUE(acceptor_->wait_for(link_, soon()).ok());
  const auto closed =
      std::count_if(flood.begin(), flood.end(), [](const UniqueFd& fd) { return was_closed(fd.get()); });
  EXPECT_GE(static_cast<std::size_t>(closed), 50U);
}

// Together they have the whole budget of the listener, and none of them exceeds its own share.
TEST_F(LinkAcceptorOverTcp, AFloodFromTwoAddressesDoesNotKeepOutARank) {
  const std::size_t share = StrangerBudget::limits_of_process(1024).address;
  std::vector<UniqueFd> flood;
  for (const char* source : {"127.0.0.2", "127.0.0.3"}) {
    for (std::size_t i = 0; i < share; ++i) flood.push_back(connect_from(source));
  }
  const Deadline before_the_strangers_expire = Deadline::after(kHandshakeTimeout - std::chrono::seconds(1));
  Status last;
  do {
    const auto link = make_link(address_, {0, kControlRole, 0}, connecting_, before_the_strangers_expire);
    last = link.status();
  } while (!last.ok() && !before_the_strangers_expire.expired());
  ASSERT_TRUE(last.ok()) << last.to_string();
  EXPECT_TRUE(acceptor_->wait_for(link_, soon()).ok());
}

TEST_F(LinkAcceptorOverTcp, WithoutDescriptorsStrangersMakeRoomForARank) {
  if (kSanitizerNeedsDescriptors) GTEST_SKIP() << "the sanitizer needs descriptors itself";
  const int before = testing::ProcessResources::now().fds;
  std::vector<UniqueFd> strangers;
  for (int i = 0; i < 3; ++i) strangers.push_back(connect());
  for (const Deadline deadline = soon(); testing::ProcessResources::now().fds < before + 6;) {
    ASSERT_FALSE(deadline.expired()) << "both ends of each must be open";
  }
  UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const NoDescriptors none;
  ASSERT_EQ(::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address_.storage), address_.length), 0);
  const auto link = introduce(std::move(fd), {0, kControlRole, 0}, connecting_, soon());
  ASSERT_TRUE(link.ok()) << link.status().to_string();
  EXPECT_TRUE(acceptor_->wait_for(link_, soon()).ok());
}

// Links for messages are connected by the sender, whichever rank it has; all others by the higher rank.
TEST(LinkAcceptorRules, OnlyLinksForMessagesMayComeFromALowerRank) {
  LinkContext lower;
  for (int rank = 0; rank < 2; ++rank) lower.members.push_back(claim_rank(rank, 2, ""));
  const auto address = abstract_unix_address(lower.members[1].unix_name);
  auto higher = std::make_shared<LinkContext>(lower);
  higher->rank = 1;
  const auto acceptor = value_or_throw(LinkAcceptor::start(higher, value_or_throw(listen_on(address))));
  const auto soon = Deadline::after(std::chrono::seconds(10));
  EXPECT_FALSE(make_link(address, {1, kControlRole, 0}, lower, soon).ok());
  EXPECT_FALSE(make_link(address, {1, kDataRole, 0}, lower, soon).ok());
  std::atomic<int> calls = 0;
  acceptor->set_listener(kMessagesRole, [&] { ++calls; });
  const auto link = make_link(address, {1, kMessagesRole, 0}, lower, soon);
  ASSERT_TRUE(link.ok()) << link.status().to_string();
  ASSERT_TRUE(acceptor->wait_for({{0, kMessagesRole, 0}}, soon).ok());
  EXPECT_EQ(calls, 1);
  EXPECT_TRUE(acceptor->take_all(kDataRole).empty());
  EXPECT_EQ(acceptor->take_all(kMessagesRole).size(), 1U);
  EXPECT_TRUE(acceptor->take_all(kMessagesRole).empty());
}

// A connector that waited too long for `accepted` closes the connection and tries again.
TEST_F(LinkAcceptorTest, AnAttemptThatTheConnectorGaveUpIsNotTaken) {
  {
    Channel given_up = connect();
    const ConnectionIdentity identity{.role = kControlRole, .group = "group", .from_rank = 1, .to_rank = 0, .index = 0};
    ASSERT_TRUE(authenticate_as_connector(given_up, connecting_.secret, identity, soon()).ok());
  }
  EXPECT_EQ(acceptor_->wait_for(link_, Deadline::after(milliseconds(300))).code(), StatusCode::timed_out);
  const auto link = introduce(connect(), {0, kControlRole, 0}, connecting_, soon());
  ASSERT_TRUE(link.ok());
  EXPECT_TRUE(acceptor_->wait_for(link_, soon()).ok());
}

}  // namespace
}  // namespace lockstep
