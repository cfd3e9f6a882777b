// What the ranks report when a group cannot be formed, and how soon.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "rendezvous/process_identity.h"
#include "rendezvous/session.h"
#include "rendezvous/testing/test_ranks.h"
#include "support/process_set.h"

namespace lockstep {
namespace {

using test_ranks::claim_key;
using test_ranks::connect_all;
using test_ranks::FilePlace;
using test_ranks::in_seconds;
using test_ranks::LastRank;
using test_ranks::MemoryPlace;
using test_ranks::RankSetup;
using test_ranks::TcpPlace;
using test_ranks::world_of;
using ::testing::AllOf;
using ::testing::HasSubstr;

double seconds_since(Deadline::Clock::time_point start) {
  return std::chrono::duration<double>(Deadline::Clock::now() - start).count();
}

TEST(Rendezvous, AllRanksReportTheMissingOnes) {
  TcpPlace place;
  auto setups = world_of(5, place);
  setups.erase(setups.begin() + 3);
  setups.erase(setups.begin() + 1);
  for (auto& setup : setups) setup.timeout = 2;
  for (const auto& mesh : connect_all(setups)) {
    EXPECT_EQ(mesh.status().code(), StatusCode::timed_out);
    EXPECT_THAT(mesh.status().message(),
                AllOf(HasSubstr("group 'world' was not formed"), HasSubstr("2 of 5 ranks are missing"),
                      HasSubstr("rank 1 never announced itself, rank 3 never announced itself")));
  }
}

TEST(Rendezvous, WithoutRankZeroTheOthersReportItMissing) {
  MemoryPlace place;
  auto setups = world_of(3, place);
  setups.erase(setups.begin());
  for (auto& setup : setups) setup.timeout = 0.5;
  for (const auto& mesh : connect_all(setups)) {
    EXPECT_EQ(mesh.status().code(), StatusCode::timed_out);
    EXPECT_THAT(mesh.status().message(), HasSubstr("1 of 3 ranks are missing at"));
    EXPECT_THAT(mesh.status().message(), HasSubstr("rank 0 never announced itself"));
  }
}

TEST(Rendezvous, ARankOfAnEarlierRunCountsAsMissing) {
  TcpPlace place;
  const auto stale = connect_all({{.rank = 1, .world_size = 2, .store = place.open(), .timeout = 0.1}});
  EXPECT_FALSE(stale[0].ok());
  const auto mesh = connect_all({{.rank = 0, .world_size = 2, .store = place.open(), .timeout = 0.5}});
  EXPECT_THAT(mesh[0].status().message(), AllOf(HasSubstr("rank 1 (host"), HasSubstr("announced itself, but does not "
                                                                                     "answer")));
}

TEST(Rendezvous, TwoProcessesThatClaimOneRankAreNamed) {
  TcpPlace place;
  auto setups = world_of(3, place);
  setups[2].rank = 1;
  const std::string pid = "pid " + std::to_string(::getpid());
  const auto start = Deadline::Clock::now();
  for (const auto& mesh : connect_all(setups, LastRank::late)) {
    EXPECT_EQ(mesh.status().code(), StatusCode::already_exists) << mesh.status().message();
    EXPECT_THAT(mesh.status().message(), HasSubstr("two processes claim rank 1: " + pid + " on host"));
    EXPECT_THAT(mesh.status().message(), HasSubstr("and " + pid + " on host"));
  }
  EXPECT_LT(seconds_since(start), 10) << "the ranks waited for the deadline";
}

TEST(Rendezvous, TwoProcessesThatClaimRankZeroAreNamed) {
  TcpPlace place;
  auto setups = world_of(3, place);
  setups[2].rank = 0;
  for (const auto& mesh : connect_all(setups, LastRank::late)) {
    EXPECT_EQ(mesh.status().code(), StatusCode::already_exists) << mesh.status().message();
    EXPECT_THAT(mesh.status().message(), HasSubstr("two processes claim rank 0"));
  }
}

TEST(Rendezvous, DifferentWorldSizesAreNamedOnBothSides) {
  TcpPlace place;
  auto setups = world_of(3, place);
  setups[2].world_size = 4;
  for (const auto& mesh : connect_all(setups, LastRank::late)) {
    EXPECT_EQ(mesh.status().code(), StatusCode::mismatch) << mesh.status().message();
    EXPECT_THAT(mesh.status().message(), AllOf(HasSubstr("rank 2 (host"), HasSubstr("has world size 4"),
                                               HasSubstr("rank 0 (host"), HasSubstr("has world size 3")));
  }
}

TEST(Rendezvous, AnotherSecretIsRefused) {
  MemoryPlace place;
  auto setups = world_of(3, place);
  for (auto& setup : setups) setup.secret = Secret(setup.rank == 1 ? "wrong" : "right");
  for (const auto& mesh : connect_all(setups)) {
    EXPECT_EQ(mesh.status().code(), StatusCode::unauthenticated) << mesh.status().message();
    EXPECT_THAT(mesh.status().message(), HasSubstr("LOCKSTEP_SECRET"));
  }
}

TEST(Rendezvous, AFailedAttemptLeavesOnlyTheReasonOfItsSession) {
  MemoryPlace place;
  for (int attempt = 0; attempt < 3; ++attempt) {
    auto setups = world_of(3, place);
    for (auto& setup : setups) setup.secret = Secret(setup.rank == 1 ? "wrong" : "right");
    for (const auto& mesh : connect_all(setups)) EXPECT_FALSE(mesh.ok());
  }
  const auto left = place.open()->list("", in_seconds(5));
  for (const auto& [key, value] : *left) {
    EXPECT_THAT(key, ::testing::AnyOf(HasSubstr("/claim/"), HasSubstr("/gone/"), HasSubstr("/invitation/"),
                                      HasSubstr("/failed")));
  }
}

TEST(Rendezvous, TheEndOfTheStoreIsDetectedAtOnce) {
  TcpPlace place;
  auto setups = world_of(3, place);
  setups.pop_back();
  std::thread stopper([&] {
    // Both have announced themselves, and wait for rank 2.
    auto store = place.open();
    const std::vector<std::string> claims{claim_key(0), claim_key(1)};
    EXPECT_TRUE(store->wait(claims, in_seconds(20)).ok());
    place.stop();
  });
  const auto meshes = connect_all(setups);
  stopper.join();
  for (const auto& mesh : meshes) {
    EXPECT_EQ(mesh.status().code(), StatusCode::peer_lost);
    EXPECT_THAT(mesh.status().message(), AllOf(HasSubstr("lost the store at 127.0.0.1"), HasSubstr("check its log")));
  }
}

// One foreign client that connects to the Unix listener and sends nothing, and one that sends garbage.
TEST(Rendezvous, ForeignClientsDoNotDelayTheRanks) {
  MemoryPlace place;
  auto setups = world_of(2, place);
  std::vector<Result<Mesh>> meshes;
  const auto start = Deadline::Clock::now();
  std::thread first([&] { meshes.push_back(test_ranks::connect(setups[0])); });
  const auto claim = place.open()->get(claim_key(0), in_seconds(20));
  ASSERT_TRUE(claim.ok());
  const auto address = abstract_unix_address(parse_member_records(*claim)->front().unix_name);
  const auto silent = connect_to(address, in_seconds(5));
  const auto loud = connect_to(address, in_seconds(5));
  ASSERT_TRUE(silent.ok() && loud.ok());
  const std::string nonsense(100, 'x');
  EXPECT_TRUE(send_all(loud->get(), std::as_bytes(std::span(nonsense.data(), nonsense.size())), in_seconds(5)).ok());
  auto second = test_ranks::connect(setups[1]);
  first.join();
  meshes.push_back(std::move(second));
  test_ranks::expect_mesh(meshes);
  EXPECT_LT(seconds_since(start), 5) << "the time that a silent stranger is given";
}

// Joins over the file or the master that the environment names, and prints the result.
LOCKSTEP_PROCESS_ROLE(rendezvous_rank) {
  const char* file = std::getenv("RENDEZVOUS_TEST_FILE");
  const std::string method = file == nullptr ? "env://" : std::string("file://") + file;
  InitOptions options{.init_method = method};
  if (file != nullptr) {
    options.rank = std::atoi(std::getenv("RANK"));
    options.world_size = std::atoi(std::getenv("WORLD_SIZE"));
  }
  const auto point = find_meeting_point(options, Secret(), in_seconds(30));
  throw_if_error(point.status());
  // Prints a mark when this rank has announced itself: from then on its end affects all ranks.
  const std::string claim = claim_key(point->rank);
  std::thread herald([&] {
    if (point->store->get(claim, in_seconds(30)).ok()) lockstep::testing::print_mark("announced");
  });
  const auto mesh = connect_mesh(*point, Secret(), {.scope = "world"}, in_seconds(30));
  herald.join();
  lockstep::testing::print_mark(mesh.ok() ? "connected" : mesh.status().to_string());
  return mesh.ok() ? 0 : 1;
}

// Rank 3 never joins, so that the others are still forming the group when one of them is killed.
class KillDuringRendezvous : public ::testing::TestWithParam<int> {
 protected:
  static constexpr int kMissing = 3;

  static lockstep::testing::StartOptions without_the_last(const std::string& file) {
    lockstep::testing::StartOptions options;
    options.rank_variables = [](int) { return lockstep::testing::Environment{{"WORLD_SIZE", "4"}}; };
    if (!file.empty()) options.environment["RENDEZVOUS_TEST_FILE"] = file;
    return options;
  }

  static void wait_until_announced(lockstep::testing::ProcessSet& ranks) {
    for (int rank = 0; rank < kMissing; ++rank) {
      ASSERT_TRUE(ranks.wait_for_line(rank, "announced", in_seconds(20))) << ranks.report();
    }
  }

  static void kill_and_expect_news(lockstep::testing::ProcessSet& ranks, int victim, const std::string& expected) {
    ASSERT_TRUE(ranks.kill(victim, SIGKILL));
    const auto start = Deadline::Clock::now();
    ASSERT_TRUE(ranks.wait_all(in_seconds(20))) << ranks.report();
    for (int rank = 0; rank < kMissing; ++rank) {
      if (rank == victim) continue;
      EXPECT_THAT(ranks.output(rank), HasSubstr(expected)) << ranks.report();
      // They were notified before the deadline of 30 s. tests/fault, which run alone, check that it takes less than the
      // promised second.
      EXPECT_LT(std::chrono::duration<double>(ranks.exit_status(rank)->when - start).count(), 10);
    }
  }
};

TEST_P(KillDuringRendezvous, AllOthersAreNotified) {
  const int victim = GetParam();
  auto ranks = lockstep::testing::start_ranks(kMissing, "rendezvous_rank", without_the_last(""));
  wait_until_announced(ranks);
  kill_and_expect_news(ranks, victim, victim == 0 ? "lost the store at" : "rank " + std::to_string(victim) + " (host");
}

TEST_P(KillDuringRendezvous, WithAFileStoreTheyAreFoundByPid) {
  const int victim = GetParam();
  FilePlace place;
  auto ranks = lockstep::testing::start_ranks(kMissing, "rendezvous_rank", without_the_last(place.path()));
  wait_until_announced(ranks);
  kill_and_expect_news(ranks, victim, "rank " + std::to_string(victim) + " (host");
}

INSTANTIATE_TEST_SUITE_P(Victims, KillDuringRendezvous, ::testing::Values(0, 1, 2),
                         [](const auto& parameter) { return "rank" + std::to_string(parameter.param); });

LOCKSTEP_PROCESS_ROLE(mesh_rank) {
  const auto point = find_meeting_point({}, Secret(), in_seconds(30));
  throw_if_error(point.status());
  throw_if_error(connect_mesh(*point, Secret(), {.scope = "world"}, in_seconds(30)).status());
  return 0;
}

TEST(RendezvousOfProcesses, FormsAGroup) {
  auto ranks = lockstep::testing::start_ranks(5, "mesh_rank");
  ASSERT_TRUE(ranks.wait_all(in_seconds(30))) << ranks.report();
  EXPECT_TRUE(ranks.all_succeeded()) << ranks.report();
}

}  // namespace
}  // namespace lockstep
