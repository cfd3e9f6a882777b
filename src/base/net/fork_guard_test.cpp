#include "base/net/fork_guard.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>

#include "base/net/resolve.h"
#include "base/net/socket.h"

namespace lockstep {
namespace {

using namespace std::chrono_literals;

// A child that runs `body`, which may call only what is allowed between fork and exec.
class Child {
 public:
  explicit Child(const std::function<void()>& body) : pid_(::fork()) {
    if (pid_ != 0) return;
    body();
    ::_exit(0);
  }
  ~Child() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

 private:
  pid_t pid_;
};

void wait_for_ever() {
  while (true) ::pause();
}

TEST(ForkGuard, AForkedChildDoesNotKeepConnectionsOpen) {
  const UniqueFd listener = value_or_throw(listen_on(resolve("127.0.0.1", 0)->front()));
  UniqueFd connected = value_or_throw(connect_to(*local_address(listener.get()), Deadline::after(5s)));
  UniqueFd accepted = value_or_throw(accept_from(listener.get(), Deadline::after(5s)));
  const Child child(wait_for_ever);
  connected.reset();
  std::byte byte{};
  EXPECT_EQ(receive_all(accepted.get(), std::span(&byte, 1), Deadline::after(5s)).code(), StatusCode::peer_lost);

  connected = value_or_throw(connect_to(*local_address(listener.get()), Deadline::after(5s)));
  accepted = value_or_throw(accept_from(listener.get(), Deadline::after(5s)));
  const Child other(wait_for_ever);
  accepted.reset();
  EXPECT_EQ(receive_all(connected.get(), std::span(&byte, 1), Deadline::after(5s)).code(), StatusCode::peer_lost);
}

TEST(ForkGuard, ALaterDescriptorOfTheSameNumberIsNotAffected) {
  int guarded[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, guarded), 0);
  for (const int fd : guarded) {
    close_in_forked_children(fd);
    ::close(fd);
  }
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends), 0);
  ASSERT_EQ(ends[0], guarded[0]) << "the kernel uses the lowest free number";
  const UniqueFd mine(ends[0]);
  const UniqueFd childs(ends[1]);
  const Child child([&] { [[maybe_unused]] const auto sent = ::write(childs.get(), "x", 1); });
  std::byte byte{};
  EXPECT_TRUE(receive_all(mine.get(), std::span(&byte, 1), Deadline::after(5s)).ok());
}

}  // namespace
}  // namespace lockstep
