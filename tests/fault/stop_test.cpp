// A process that is stopped, a link that is cut, a rank that is alive but does not take part.
#include <sstream>
#include <thread>

#include "fault/failing_rank.h"
#include "support/hosts.h"

namespace lockstep::testing {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr double kPeerTimeoutSeconds = 1.5;
// A peer was last heard up to one heartbeat's interval before it fell silent, so the peer timeout is reached
// in time; the rest is for a busy machine to run the threads that detect it.
constexpr double kDetectedSeconds = kPeerTimeoutSeconds + 1.0;

LOCKSTEP_PROCESS_ROLE(works_with_short_peer_timeout) {
  const CommunicatorOptions options{.init_timeout = 60s, .timeout = 60s, .peer_timeout = 1500ms};
  return run_until_failure(options, [](Communicator& group) {
    std::vector<float> data(5000);
    for (int turn = 0;; ++turn) {
      group.all_reduce(std::span(data));
      if (turn == 2) print_mark("ready");
    }
  });
}

void await_ready(ProcessSet& ranks) {
  for (int rank = 0; rank < ranks.size(); ++rank) {
    ASSERT_TRUE(ranks.wait_for_line(rank, "ready", in_seconds(60))) << ranks.report();
  }
}

class Stop : public ::testing::TestWithParam<Wire> {};

TEST_P(Stop, IsDetectedWithinThePeerTimeoutByTheOthersAndLaterByTheStoppedRank) {
  constexpr int kRanks = 3;
  constexpr int kStopped = 1;
  ProcessSet ranks = start_ranks(kRanks, "works_with_short_peer_timeout",
                                 {.rank_variables = [](int rank) { return variables_for(GetParam(), rank); }});
  await_ready(ranks);
  const StallWatch watch;
  ASSERT_TRUE(ranks.kill(kStopped, SIGSTOP));
  std::vector<Failure> failures;
  const auto lost = AllOf(HasSubstr("peer_lost"), NamesRank(kStopped, ranks.pid(kStopped)),
                          ContainsRegex("nothing heard from it for [0-9.]+ s \\(limit 1.5 s\\)"),
                          ContainsRegex("all_reduce\\(count 5000, f32, sum\\) #[0-9]+ of group 'world'"));
  for (const int rank : {0, 2}) {
    failures.push_back(await_failure(ranks, rank, 20));
    EXPECT_THAT(failures.back().text, lost);
  }
  report_detection("SIGSTOP, " + to_string(GetParam()), watch, failures, kDetectedSeconds);
  for (const int rank : {0, 2}) ASSERT_TRUE(ranks.wait(rank, in_seconds(20))) << ranks.report();

  const StallWatch watch_of_continued;
  ASSERT_TRUE(ranks.kill(kStopped, SIGCONT));
  const Failure own = await_failure(ranks, kStopped, 20);
  EXPECT_THAT(own.text, lost) << "the stopped rank learns that the others declared it lost";
  report_detection("SIGCONT, " + to_string(GetParam()), watch_of_continued, {own}, promised_seconds(GetParam()));
  expect_success(ranks, 20);
}

INSTANTIATE_TEST_SUITE_P(Wires, Stop, ::testing::Values(Wire::host, Wire::tcp),
                         [](const auto& info) { return to_string(info.param); });

TEST(CutLink, IsDetectedWithinThePeerTimeoutOnBothSides) {
  LOCKSTEP_MAKE_HOSTS_OR_SKIP(hosts, 3);
  ProcessSet ranks = start_ranks(3, "works_with_short_peer_timeout", {.hosts = &hosts});
  await_ready(ranks);
  const StallWatch watch;
  ASSERT_TRUE(hosts.cut_link(2).ok());
  std::vector<Failure> failures;
  for (int rank = 0; rank < 3; ++rank) failures.push_back(await_failure(ranks, rank, 20));
  report_detection("link cut, 3 hosts", watch, failures, kDetectedSeconds);
  for (const int rank : {0, 1}) {
    EXPECT_THAT(failures[static_cast<std::size_t>(rank)].text,
                AllOf(HasSubstr("peer_lost"), NamesRank(2, ranks.pid(2)), HasSubstr("nothing heard from it")));
  }
  EXPECT_THAT(failures[2].text, AllOf(HasSubstr("peer_lost"), ContainsRegex("rank [01] \\(host")));
  expect_success(ranks, 20);
}

TEST(KillOnAnotherHost, IsDetectedInTime) {
  LOCKSTEP_MAKE_HOSTS_OR_SKIP(hosts, 2);
  ProcessSet ranks = start_ranks(4, "works_with_short_peer_timeout", {.hosts = &hosts});
  await_ready(ranks);
  const StallWatch watch;
  ASSERT_TRUE(ranks.kill(3, SIGKILL));
  std::vector<Failure> failures;
  for (int rank = 0; rank < 3; ++rank) {
    failures.push_back(await_failure(ranks, rank, 20));
    EXPECT_THAT(failures.back().text, AllOf(HasSubstr("peer_lost"), NamesRank(3, ranks.pid(3))));
  }
  report_detection("kill -9, 2 hosts x 2 ranks", watch, failures, 2.0);
  ASSERT_TRUE(ranks.wait_all(in_seconds(20))) << ranks.report();
}

// Rank 2 is alive, but on a different code path.
LOCKSTEP_PROCESS_ROLE(one_does_not_take_part) {
  const CommunicatorOptions options{.init_timeout = 60s, .timeout = 1500ms, .warn_after = 300ms};
  return run_until_failure(options, [](Communicator& group) {
    if (group.rank() == 2) {
      const auto until = in_seconds(60);
      while (group.health().ok() && !until.expired()) std::this_thread::sleep_for(1ms);
    } else {
      print_mark("ready");
    }
    std::vector<float> data(10);
    group.all_reduce(std::span(data));
  });
}

class Absence : public ::testing::TestWithParam<Wire> {};

TEST_P(Absence, IsReportedByAWarningAndEndsAtTheDeadline) {
  ProcessSet ranks = start_ranks(3, "one_does_not_take_part",
                                 {.rank_variables = [](int rank) { return variables_for(GetParam(), rank); }});
  for (const int rank : {0, 1}) {
    ASSERT_TRUE(ranks.wait_for_line(rank, "ready", in_seconds(60))) << ranks.report();
    const Failure failure = await_failure(ranks, rank, 20);
    EXPECT_THAT(failure.text,
                AllOf(HasSubstr("timed_out"), NamesRank(2, ranks.pid(2)), HasSubstr("did not reach this operation"),
                      HasSubstr("all_reduce(count 10, f32, sum) #1 of group 'world'")));
    EXPECT_THAT(failure.text, Not(ContainsRegex("rank [01] \\(host")))
        << "ranks that reached the operation are not to blame";
  }
  expect_success(ranks, 20);
  for (const int rank : {0, 1}) {
    std::istringstream lines(ranks.error_output(rank));
    std::vector<std::string> warnings;
    for (std::string line; std::getline(lines, line);) warnings.push_back(line);
    EXPECT_THAT(warnings,
                ::testing::Contains(AllOf(HasSubstr("all_reduce(count 10, f32, sum) #1 of group 'world' has waited"),
                                          NamesRank(2, ranks.pid(2)), Not(ContainsRegex("rank [01] \\(host")))))
        << "a warning before the error";
  }
}

INSTANTIATE_TEST_SUITE_P(Wires, Absence, ::testing::Values(Wire::host, Wire::tcp),
                         [](const auto& info) { return to_string(info.param); });

}  // namespace
}  // namespace lockstep::testing
