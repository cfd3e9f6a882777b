#include "support/hosts.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <string>

#include "support/process_resources.h"
#include "support/process_set.h"

namespace lockstep::testing {
namespace {

constexpr int kUnreachable = 3;

// Connects to the master until the deadline in CONNECT_MS; kUnreachable if no answer comes.
LOCKSTEP_PROCESS_ROLE(connect_to_first_host) {
  while (std::getenv("LOCKSTEP_STORE_FD") != nullptr) ::pause();  // rank 0 owns the socket; it ends with the test
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(std::atoi(std::getenv("MASTER_PORT"))));
  ::inet_pton(AF_INET, std::getenv("MASTER_ADDR"), &address.sin_addr);
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
  if (::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0 && errno != EINPROGRESS) return 1;
  pollfd ready{fd, POLLOUT, 0};
  if (::poll(&ready, 1, std::atoi(std::getenv("CONNECT_MS"))) != 1) return kUnreachable;
  int error = 0;
  socklen_t length = sizeof(error);
  ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length);
  return error == 0 ? 0 : 1;
}

TEST(HostSet, HostsReachEachOther) {
  LOCKSTEP_MAKE_HOSTS_OR_SKIP(hosts, 3);
  ProcessSet ranks =
      start_ranks(3, "connect_to_first_host", {.environment = {{"CONNECT_MS", "20000"}}, .hosts = &hosts});
  for (int rank = 1; rank < ranks.size(); ++rank) {
    const auto status = ranks.wait(rank, in_seconds(60));
    ASSERT_TRUE(status && status->success()) << ranks.report();
  }
}

TEST(HostSet, RunsOtherProgramsInside) {
  LOCKSTEP_MAKE_HOSTS_OR_SKIP(hosts, 2);
  ProcessSet ranks = start_program(2, {"ip", "-4", "-brief", "address", "show", "dev", "eth0"}, {.hosts = &hosts});
  ASSERT_TRUE(ranks.wait_all(in_seconds(60))) << ranks.report();
  EXPECT_THAT(ranks.output(0), ::testing::HasSubstr(HostSet::address(0) + "/24"));
  EXPECT_THAT(ranks.output(1), ::testing::HasSubstr(HostSet::address(1) + "/24"));
}

TEST(HostSet, ACutLinkDropsPacketsUntilItIsRestored) {
  LOCKSTEP_MAKE_HOSTS_OR_SKIP(hosts, 2, {.rate = "1gbit"});
  ASSERT_TRUE(hosts.cut_link(0).ok());
  ProcessSet cut = start_ranks(2, "connect_to_first_host", {.environment = {{"CONNECT_MS", "300"}}, .hosts = &hosts});
  const auto status_cut = cut.wait(1, in_seconds(60));
  ASSERT_TRUE(status_cut);
  EXPECT_EQ(status_cut->code, kUnreachable) << cut.report();
  ASSERT_TRUE(hosts.restore_link(0).ok());
  ProcessSet restored =
      start_ranks(2, "connect_to_first_host", {.environment = {{"CONNECT_MS", "20000"}}, .hosts = &hosts});
  const auto status_restored = restored.wait(1, in_seconds(60));
  ASSERT_TRUE(status_restored && status_restored->success()) << restored.report();
}

TEST(HostSet, LeavesNoDescriptorBehind) {
  const auto before = ProcessResources::now();
  {
    LOCKSTEP_MAKE_HOSTS_OR_SKIP(hosts, 2);
    EXPECT_GT(ProcessResources::now().fds, before.fds);
    EXPECT_EQ(hosts.size(), 2);
  }
  const auto after = ProcessResources::settle(before, in_seconds(20));
  EXPECT_EQ(after, before) << describe(after);
}

}  // namespace
}  // namespace lockstep::testing
