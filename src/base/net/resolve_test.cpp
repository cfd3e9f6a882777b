#include "base/net/resolve.h"

#include <gmock/gmock.h>
#include <netdb.h>

#include <atomic>
#include <thread>

namespace lockstep {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

std::atomic<bool> name_server_answers{false};
std::atomic<int> look_ups_begun{0};

// A name server that does not answer until it is told to.
int slow_look_up(const char*, std::vector<SocketAddress>& addresses) {
  ++look_ups_begun;
  while (!name_server_answers) std::this_thread::sleep_for(1ms);
  addresses.push_back(abstract_unix_address("any"));
  return 0;
}

TEST(Resolve, ANameServerThatDoesNotAnswerEndsAtTheDeadline) {
  name_server_answers = false;
  look_ups_begun = 0;
  for (int i = 0; i < 20; ++i) {
    const auto addresses = resolve_with(slow_look_up, "slow.invalid", 1, Deadline::after(10ms));
    ASSERT_FALSE(addresses.ok());
    EXPECT_EQ(addresses.status().code(), StatusCode::timed_out);
    EXPECT_THAT(addresses.status().message(), HasSubstr("slow.invalid"));
  }
  EXPECT_EQ(look_ups_begun, 1) << "one thread for each name, however often it is looked up";
  name_server_answers = true;
  EXPECT_TRUE(resolve_with(slow_look_up, "slow.invalid", 1, Deadline::after(20s)).ok());
}

TEST(Resolve, ManyThreadsGetTheSameAnswer) {
  name_server_answers = false;
  std::atomic<int> answers{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back(
        [&] { answers += resolve_with(slow_look_up, "shared.invalid", 1, Deadline::after(20s)).ok() ? 1 : 0; });
  }
  name_server_answers = true;
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(answers, 8);
}

TEST(Resolve, AnAddressNeedsNoNameServer) {
  name_server_answers = false;
  const auto v4 = resolve_with(slow_look_up, "127.0.0.1", 29500, Deadline::after(0ms));
  ASSERT_TRUE(v4.ok());
  EXPECT_EQ(v4->front().to_string(), "127.0.0.1:29500");
  const auto v6 = resolve_with(slow_look_up, "[::1]", 29500, Deadline::after(0ms));
  ASSERT_TRUE(v6.ok());
  EXPECT_EQ(v6->front().to_string(), "[::1]:29500");
  name_server_answers = true;
}

TEST(Resolve, ReportsWhatTheResolverReports) {
  const auto failing = [](const char*, std::vector<SocketAddress>&) { return EAI_NONAME; };
  const auto addresses = resolve_with(failing, "nowhere.invalid", 1, Deadline::after(20s));
  EXPECT_EQ(addresses.status().code(), StatusCode::unavailable);
  EXPECT_THAT(addresses.status().message(), HasSubstr("cannot resolve host 'nowhere.invalid'"));
}

}  // namespace
}  // namespace lockstep
