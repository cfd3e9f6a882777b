// kill -9 while the group is being formed.
#include <lockstep/store/stores.h>

#include <algorithm>

#include "fault/failing_rank.h"

namespace lockstep::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

LOCKSTEP_PROCESS_ROLE(waits_for_missing_rank) {
  const NothingLeftBehind nothing;
  print_mark(fmt::format("the store's port is {}.", std::getenv("MASTER_PORT")));
  const Status failure = error_of([] { join_world(); });
  require(!failure.ok(), "the group was formed");
  report_failure(failure);
  nothing.check();
  return 0;
}

std::string port_of(ProcessSet& ranks) {
  EXPECT_TRUE(ranks.wait_for_line(0, "the store's port is", in_seconds(30))) << ranks.report();
  const std::string output = ranks.output(0);
  const auto begin = output.find("port is ") + 8;
  return output.substr(begin, output.find('.', begin) - begin);
}

// Waits until `ranks` have reached the meeting point, as its store shows: all but rank 0, which
// invites them, store their acceptance there.
void await_meeting(Store& store, int ranks, Deadline deadline) {
  std::ptrdiff_t accepted = 0;
  while (accepted < ranks - 1) {
    ASSERT_FALSE(deadline.expired()) << "only " << accepted << " ranks have accepted";
    const auto keys = value_or_throw(store.list("", deadline));
    accepted = std::count_if(keys.begin(), keys.end(),
                             [](const auto& entry) { return entry.first.find("/accepted/") != std::string::npos; });
  }
}

// Three of four ranks have joined and wait for the fourth.
class KillWhileForming : public ::testing::TestWithParam<int> {};

TEST_P(KillWhileForming, IsDetectedInTimeAndNamed) {
  const int victim = GetParam();
  constexpr int kRanks = 3;
  const auto server = serve_tcp_store();
  const auto store = connect_tcp_store("127.0.0.1", server->port(), Secret(), in_seconds(10));
  ProcessSet ranks = start_ranks(kRanks, "waits_for_missing_rank",
                                 {.environment = {{"WORLD_SIZE", "4"},
                                                  {"MASTER_PORT", std::to_string(server->port())},
                                                  {"LOCKSTEP_STORE_IS_SERVED", "1"},
                                                  {"LOCKSTEP_STORE_FD", std::nullopt}}});
  ASSERT_NO_FATAL_FAILURE(await_meeting(*store, kRanks, in_seconds(30))) << ranks.report();

  const StallWatch watch;
  ASSERT_TRUE(ranks.kill(victim, SIGKILL));
  std::vector<Failure> failures;
  for (int rank = 0; rank < kRanks; ++rank) {
    if (rank == victim) continue;
    failures.push_back(await_failure(ranks, rank, 20));
    EXPECT_THAT(failures.back().text, AllOf(HasSubstr("peer_lost"), NamesRank(victim, ranks.pid(victim))));
  }
  report_detection(fmt::format("kill -9 of rank {} while forming", victim), watch, failures, 1.0);
  ASSERT_TRUE(ranks.wait_all(in_seconds(20))) << ranks.report();
  for (int rank = 0; rank < kRanks; ++rank) {
    if (rank == victim) continue;
    EXPECT_TRUE(ranks.exit_status(rank)->success()) << ranks.report();
  }
}

INSTANTIATE_TEST_SUITE_P(Victims, KillWhileForming, ::testing::Values(0, 1, 2));

// Rank 0 serves the store, which dies with it.
TEST(KillOfTheStore, WhileFormingIsDetectedInTime) {
  constexpr int kRanks = 3;
  ProcessSet ranks = start_ranks(kRanks, "waits_for_missing_rank", {.environment = {{"WORLD_SIZE", "4"}}});
  const std::string port = port_of(ranks);
  const auto store =
      connect_tcp_store("127.0.0.1", static_cast<std::uint16_t>(std::stoi(port)), Secret(), in_seconds(30));
  ASSERT_NO_FATAL_FAILURE(await_meeting(*store, kRanks, in_seconds(30))) << ranks.report();

  const StallWatch watch;
  ASSERT_TRUE(ranks.kill(0, SIGKILL));
  std::vector<Failure> failures;
  for (int rank = 1; rank < kRanks; ++rank) {
    failures.push_back(await_failure(ranks, rank, 20));
    EXPECT_THAT(failures.back().text, AllOf(HasSubstr("peer_lost"), HasSubstr("127.0.0.1:" + port)));
  }
  report_detection("kill -9 of rank 0 with the store while forming", watch, failures, 1.0);
  ASSERT_TRUE(ranks.wait_all(in_seconds(20))) << ranks.report();
}

}  // namespace
}  // namespace lockstep::testing
