// After a failure the survivors continue in the same processes, as a new generation.
#include <lockstep/store/stores.h>

#include "fault/failing_rank.h"

namespace lockstep::testing {
namespace {

using namespace std::chrono_literals;

StartOptions at_store_of(const StoreServer& server, Wire wire) {
  return {.environment = {{"MASTER_PORT", std::to_string(server.port())}, {"LOCKSTEP_STORE_FD", std::nullopt}},
          .rank_variables = [wire](int rank) { return variables_for(wire, rank); }};
}

std::shared_ptr<Store> common_store() {
  const auto port = static_cast<std::uint16_t>(std::atoi(std::getenv("MASTER_PORT")));
  return connect_tcp_store("127.0.0.1", port, Secret(), in_seconds(30));
}

void expect_sum(Communicator& group) {
  std::vector<double> data(3000, group.rank() + 1.0);
  group.all_reduce(std::span(data));
  require(data.front() == group.size() * (group.size() + 1) / 2.0, "a wrong sum");
  require(data.back() == data.front(), "a wrong sum");
}

// The highest rank dies in each generation, until one is left.
LOCKSTEP_PROCESS_ROLE(shrinks) {
  const NothingLeftBehind nothing;
  {
    const auto store = common_store();
    for (int size = world_size_from_environment(); size > 1; --size) {
      const auto group = Communicator::create(store, rank_from_environment(), size, patient_options());
      expect_sum(*group);
      print_mark(fmt::format("generation of {} is established", size));
      const Status failure = error_of([&] {
        while (true) group->barrier();
      });
      require(failure.code() == StatusCode::peer_lost, failure.to_string());
    }
    const auto alone = Communicator::create(store, 0, 1, patient_options());
    expect_sum(*alone);
  }
  nothing.check();
  return 0;
}

class Generations : public ::testing::TestWithParam<Wire> {};

TEST_P(Generations, OfSurvivorsShrinkWithEachKill) {
  constexpr int kRanks = 6;
  const auto server = serve_tcp_store();
  ProcessSet ranks = start_ranks(kRanks, "shrinks", at_store_of(*server, GetParam()));
  for (int size = kRanks; size > 1; --size) {
    for (int rank = 0; rank < size; ++rank) {
      ASSERT_TRUE(ranks.wait_for_line(rank, fmt::format("generation of {} is established", size), in_seconds(60)))
          << ranks.report();
    }
    ASSERT_TRUE(ranks.kill(size - 1, SIGKILL));
  }
  ASSERT_TRUE(ranks.wait_all(in_seconds(20))) << ranks.report();
  EXPECT_TRUE(ranks.exit_status(0)->success()) << ranks.report();
}

// Twenty generations in the same processes, each ended in another way.
LOCKSTEP_PROCESS_ROLE(fails_again_and_again) {
  const NothingLeftBehind nothing;
  {
    const auto store = common_store();
    const int rank = rank_from_environment();
    const int size = world_size_from_environment();
    for (int generation = 0; generation < 20; ++generation) {
      const auto group = Communicator::create(store, rank, size, patient_options());
      const auto memory = group->allocate(1 << 20);
      expect_sum(*group);
      const bool troublemaker = rank == generation % size;
      const Status failure = error_of([&] {
        // After this, all other ranks are done with the sum above.
        group->barrier();
        std::vector<float> data(100);
        switch (generation % 3) {
          case 0:
            if (troublemaker) group->abort("enough");
            break;
          case 1:
            if (troublemaker) group->broadcast(std::span(data), 0);
            break;
          default:
            if (troublemaker) throw Error(Status(StatusCode::peer_lost, "leaves early"));
        }
        while (true) group->all_reduce(std::span(data));
      });
      constexpr StatusCode kExpected[] = {StatusCode::aborted, StatusCode::mismatch, StatusCode::peer_lost};
      require(failure.code() == kExpected[generation % 3],
              fmt::format("generation {}: {}", generation, failure.to_string()));
    }
  }
  nothing.check();
  return 0;
}

TEST_P(Generations, FollowEachOtherTwentyTimesInTheSameProcesses) {
  const auto server = serve_tcp_store();
  ProcessSet ranks = start_ranks(3, "fails_again_and_again", at_store_of(*server, GetParam()));
  expect_success(ranks);
}

INSTANTIATE_TEST_SUITE_P(Wires, Generations, ::testing::Values(Wire::host, Wire::tcp),
                         [](const auto& info) { return to_string(info.param); });

}  // namespace
}  // namespace lockstep::testing
