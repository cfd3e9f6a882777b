#include "rendezvous/links.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <thread>

#include "base/net/resolve.h"
#include "base/net/socket.h"
#include "rendezvous/link_acceptor.h"
#include "rendezvous/process_identity.h"
#include "support/no_descriptors.h"
#include "support/reserved_port.h"

namespace lockstep {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

// Rank 1 of two, which connects.
class LinksTest : public ::testing::Test {
 protected:
  LinksTest() {
    context_.group_id = "group";
    context_.secret = Secret("0123456789abcdef0123456789abcdef");
    for (int rank = 0; rank < 2; ++rank) context_.members.push_back(claim_rank(rank, 2, ""));
    context_.rank = 1;
  }
  static Deadline soon() { return Deadline::after(10s); }
  Result<Channel> connect(const SocketAddress& address) const {
    return make_link(address, {0, kControlRole, 0}, context_, soon());
  }

  LinkContext context_;
};

TEST_F(LinksTest, ARankThatHasEndedIsNotTriedAgain) {
  const testing::ReservedPort port;
  EXPECT_EQ(connect(port.address()).status().code(), StatusCode::unavailable);
}

TEST_F(LinksTest, ALackOfDescriptorsIsWorthAnotherAttempt) {
  if (testing::kSanitizerNeedsDescriptors) GTEST_SKIP() << "the sanitizer needs descriptors itself";
  const testing::ReservedPort port;
  const testing::NoDescriptors none;
  const Status status = connect(port.address()).status();
  EXPECT_EQ(status.code(), StatusCode::timed_out);
  EXPECT_THAT(status.message(), HasSubstr("EMFILE"));
}

// The kernel has no route for TCP to a broadcast address.
TEST_F(LinksTest, AMissingRouteIsWorthAnotherAttemptButNotAtOnce) {
  const auto before = Deadline::Clock::now();
  const Status status = connect(resolve("255.255.255.255", 9)->front()).status();
  EXPECT_EQ(status.code(), StatusCode::timed_out);
  EXPECT_THAT(status.message(), HasSubstr("ENETUNREACH"));
  EXPECT_GE(Deadline::Clock::now() - before, 10ms) << "or the caller uses all of a processor";
}

TEST_F(LinksTest, AnotherProcessThatListensOnTheUnixSocketIsRefused) {
  const SocketAddress address = abstract_unix_address(context_.members[0].unix_name);
  const UniqueFd listener = value_or_throw(listen_on(address));
  if (context_.members[0].process_space.empty()) GTEST_SKIP() << "processes cannot be compared here";
  context_.members[0].pid = 1;
  const Status status = connect(address).status();
  EXPECT_EQ(status.code(), StatusCode::unauthenticated) << status.to_string();
  EXPECT_THAT(status.message(), HasSubstr("pid 1"));
}

// As an acceptor does that must make room, when the handshake has begun: it cannot say why any more.
TEST_F(LinksTest, AConnectionThatIsClosedInTheHandshakeIsWorthAnotherAttempt) {
  for (const bool encrypted : {false, true}) {
    if (!encrypted) context_.secret = {};
    const UniqueFd listener = value_or_throw(listen_on(resolve("127.0.0.1", 0)->front()));
    std::jthread acceptor([fd = listener.get()] {
      const UniqueFd evicted = value_or_throw(accept_from(fd, soon()));
      EXPECT_TRUE(wait_ready(evicted.get(), POLLIN, soon()).ok());
    });
    const Status status = connect(value_or_throw(local_address(listener.get()))).status();
    EXPECT_EQ(status.code(), StatusCode::timed_out) << status.to_string();
    EXPECT_THAT(status.message(), HasSubstr("rank 0"));
    context_.secret = Secret("0123456789abcdef0123456789abcdef");
  }
}

}  // namespace
}  // namespace lockstep
