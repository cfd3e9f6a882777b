#include "launch/report/failure.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

namespace lockstep::launch {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

struct Spec {
  int rank;
  double seconds;  // when
  int code = 1;
  int signal = 0;
  bool stopped = false;
  bool consequence = false;
};

RankEnd ended(const Spec& spec) {
  RankEnd end;
  end.failure.rank = spec.rank;
  end.failure.local_rank = spec.rank;
  end.failure.pid = 100 + spec.rank;
  end.failure.host = "tower";
  end.failure.exit_code = spec.signal != 0 ? 0 : spec.code;
  end.failure.signal = spec.signal;
  end.failure.time_ns = static_cast<std::int64_t>(spec.seconds * 1e9);
  end.uptime_seconds = spec.seconds;
  end.stopped = spec.stopped;
  end.consequence = spec.consequence;
  return end;
}

TEST(FirstFailure, IsTheEarliestNotTheFirstDetected) {
  EXPECT_EQ(first_failure({ended({.rank = 0, .seconds = 2}), ended({.rank = 1, .seconds = 1})})->failure.rank, 1);
}

TEST(FirstFailure, IsNotARankThatBlamesAnother) {
  const std::vector<RankEnd> ends = {ended({.rank = 0, .seconds = 1, .consequence = true}),
                                     ended({.rank = 1, .seconds = 1.1, .signal = SIGSEGV})};
  EXPECT_EQ(first_failure(ends)->failure.rank, 1);
}

TEST(FirstFailure, IsTheEarliestIfAllBlameAnother) {
  const std::vector<RankEnd> ends = {ended({.rank = 0, .seconds = 2, .consequence = true}),
                                     ended({.rank = 1, .seconds = 1, .consequence = true})};
  EXPECT_EQ(first_failure(ends)->failure.rank, 1);
}

TEST(FirstFailure, IsNotARankThatWasStoppedOrSucceeded) {
  const std::vector<RankEnd> ends = {ended({.rank = 0, .seconds = 1, .signal = SIGTERM, .stopped = true}),
                                     ended({.rank = 1, .seconds = 2, .code = 0}), ended({.rank = 2, .seconds = 3})};
  EXPECT_EQ(first_failure(ends)->failure.rank, 2);
  EXPECT_EQ(first_failure({ended({.rank = 1, .seconds = 2, .code = 0})}), nullptr);
}

TEST(FinalFailures, AreNoneIfTheLastRankSucceeded) {
  EXPECT_THAT(final_failures(
                  {ended({.rank = 0, .seconds = 1, .signal = SIGKILL}), ended({.rank = 1, .seconds = 90, .code = 0})}),
              SizeIs(0));
  EXPECT_THAT(final_failures({}), SizeIs(0));
}

TEST(FinalFailures, AreTheLastOnesIfNoRankSurvived) {
  const auto last = final_failures({ended({.rank = 0, .seconds = 10, .signal = SIGKILL}),
                                    ended({.rank = 1, .seconds = 99, .consequence = true}),
                                    ended({.rank = 2, .seconds = 98, .signal = SIGSEGV})});
  ASSERT_THAT(last, SizeIs(2));
  EXPECT_EQ(first_failure(last)->failure.rank, 2);
}

TEST(ExitCode, IsTheRanksOrItsSignals) {
  EXPECT_EQ(exit_code_of(ended({.rank = 0, .seconds = 1, .code = 7}).failure), 7);
  EXPECT_EQ(exit_code_of(ended({.rank = 0, .seconds = 1, .signal = SIGSEGV}).failure), 139);
  EXPECT_EQ(describe_end(7, 0), "exit code 7");
  EXPECT_EQ(describe_end(0, SIGSEGV), "signal 11 (SIGSEGV)");
}

TEST(FailureReport, ListsWhichRankWhereHowWhyAndTheConsequences) {
  RankEnd first = ended({.rank = 2, .seconds = 3.25, .signal = SIGSEGV});
  first.failure.reason = "SIGSEGV (Segmentation fault) at address 0x0\n#0  main+0x4 in ./train";
  first.failure.log = "/logs/2";
  first.stderr_tail = "epoch 1\nloss nan\n";
  RankEnd followers = ended({.rank = 0, .seconds = 3.3, .consequence = true});
  followers.failure.reason = "lockstep::Error: peer_lost: rank 2\n#0  frames";
  const std::string report = failure_report(
      first, {followers, first, ended({.rank = 1, .seconds = 4, .signal = SIGTERM, .stopped = true})}, "/logs");
  for (const char* words :
       {"rank 2 failed first, with signal 11 (SIGSEGV)", "tower, pid 102", "3.2 s after its start", "at address 0x0",
        "main+0x4 in ./train", "loss nan", "rank 0 (exit code 1): lockstep::Error: peer_lost: rank 2\n",
        "by the launcher: rank 1", "/logs/2", "/logs"}) {
    EXPECT_THAT(report, HasSubstr(words));
  }
  EXPECT_THAT(report, Not(HasSubstr("#0  frames")));
}

TEST(FailureReport, ShowsNoControlCharactersOfAReason) {
  RankEnd first = ended({.rank = 0, .seconds = 1});
  first.failure.reason = "bad \x1b]0;title\x07 \xff value\n#0  main";
  const std::string report = failure_report(first, {first}, "");
  EXPECT_THAT(report, HasSubstr("bad ?]0;title? ? value\n"));
  EXPECT_THAT(report, HasSubstr("#0  main"));
}

TEST(FailureReport, ExplainsAKillFromOutside) {
  const RankEnd killed = ended({.rank = 0, .seconds = 1, .signal = SIGKILL});
  EXPECT_THAT(failure_report(killed, {killed}, ""), HasSubstr("memory ran out"));
}

TEST(RankList, JoinsNeighbours) {
  EXPECT_EQ(rank_list({5, 3, 4, 0, 7, 8}), "0, 3-5, 7, 8");
  EXPECT_EQ(rank_list({}), "");
}

}  // namespace
}  // namespace lockstep::launch
