#include "rendezvous/link_acceptor.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include "base/random.h"
#include "rendezvous/process_identity.h"

namespace lockstep {
namespace {

using std::chrono::milliseconds;

// Rank 0 of two accepts; the test is rank 1.
class LinkAcceptorTest : public ::testing::Test {
 protected:
  LinkAcceptorTest() {
    accepting_.group_id = "group";
    accepting_.secret = Secret("secret");
    for (int rank = 0; rank < 2; ++rank) accepting_.members.push_back(claim_rank(rank, 2, ""));
    address_ = abstract_unix_address(accepting_.members[0].unix_name);
    acceptor_ = value_or_throw(LinkAcceptor::start(accepting_, value_or_throw(listen_on(address_))));
    connecting_ = accepting_;
    connecting_.rank = 1;
  }
  static Deadline soon() { return Deadline::after(std::chrono::seconds(10)); }
  UniqueFd connect() const { return value_or_throw(connect_to(address_, soon())); }
  // As seen by rank 0.
  const std::vector<LinkName> link_ = {{1, kControlRole, 0}};

  LinkContext accepting_;
  LinkContext connecting_;
  SocketAddress address_;
  std::unique_ptr<LinkAcceptor> acceptor_;
};

TEST_F(LinkAcceptorTest, ALinkIsThereOnceItIsIntroduced) {
  const UniqueFd fd = connect();
  ASSERT_TRUE(introduce(fd.get(), {0, kControlRole, 0}, connecting_, soon()).ok());
  ASSERT_TRUE(acceptor_->wait_for(link_, soon()).ok());
  const UniqueFd taken = acceptor_->take(link_[0]);
  const char letter = 'x';
  ASSERT_EQ(::send(fd.get(), &letter, 1, MSG_NOSIGNAL), 1);
  char received = 0;
  for (const Deadline deadline = soon(); received != 'x' && !deadline.expired();) {
    ASSERT_LE(::recv(taken.get(), &received, 1, MSG_DONTWAIT), 1);
  }
  EXPECT_EQ(received, 'x') << "the confirmation must not be left in the link, nor its first byte be lost";
}

// A connector that waited too long for `accepted` closes the connection and tries again.
TEST_F(LinkAcceptorTest, AnAttemptThatTheConnectorGaveUpIsNotTaken) {
  {
    const UniqueFd given_up = connect();
    const ConnectionIdentity identity{.role = kControlRole, .group = "group", .from_rank = 1, .to_rank = 0, .index = 0};
    ASSERT_TRUE(authenticate_as_connector(given_up.get(), connecting_.secret, identity, soon()).ok());
  }
  EXPECT_EQ(acceptor_->wait_for(link_, Deadline::after(milliseconds(300))).code(), StatusCode::timed_out);
  const UniqueFd fd = connect();
  ASSERT_TRUE(introduce(fd.get(), {0, kControlRole, 0}, connecting_, soon()).ok());
  EXPECT_TRUE(acceptor_->wait_for(link_, soon()).ok());
}

}  // namespace
}  // namespace lockstep
