#include "base/net/fd_passing.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>

namespace lockstep {
namespace {

class FdPassing : public ::testing::Test {
 protected:
  FdPassing() {
    int ends[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends), 0);
    sender_.reset(ends[0]);
    receiver_.reset(ends[1]);
  }

  UniqueFd sender_;
  UniqueFd receiver_;
  std::vector<UniqueFd> fds_;
  std::array<std::byte, 16> buffer_{};
};

TEST_F(FdPassing, ADescriptorArrivesWithItsBytes) {
  ASSERT_EQ(send_some(sender_.get(), std::span(buffer_).first(4), receiver_.get()).bytes, 4u);
  const IoResult result = receive_some(receiver_.get(), buffer_, fds_);
  EXPECT_EQ(result.bytes, 4u);
  EXPECT_EQ(result.error, 0);
  EXPECT_EQ(fds_.size(), 1u);
}

// The kernel delivers the bytes all the same: without a look at its flag, the descriptor would just be missing.
TEST_F(FdPassing, ADescriptorThatIsLostIsAnError) {
  ASSERT_EQ(send_some(sender_.get(), std::span(buffer_).first(4), receiver_.get()).bytes, 4u);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none{.rlim_cur = 3, .rlim_max = before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  const IoResult result = receive_some(receiver_.get(), buffer_, fds_);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(result.error, EMFILE);
  EXPECT_TRUE(fds_.empty());
}

}  // namespace
}  // namespace lockstep
