// Ranks as processes that find each other through the environment.
#include <algorithm>
#include <atomic>
#include <numeric>
#include <thread>
#include <vector>

#include "conformance/call.h"
#include "multiproc/rank_process.h"

namespace lockstep::testing {
namespace {

using conformance::Call;
using conformance::Kind;
using conformance::Memory;

// Every collective in private, registered and mixed memory, as the conformance suite checks it.
void run_every_collective(Communicator& group) {
  conformance::Values values(group.size(), 1, false);
  std::vector<Call> calls;
  for (const std::size_t count : {0, 1, 7, 1000, 30011, 300007}) {
    for (const auto kind : {Kind::all_reduce, Kind::reduce, Kind::reduce_scatter, Kind::broadcast, Kind::all_gather,
                            Kind::all_gather_v, Kind::gather, Kind::scatter, Kind::all_to_all}) {
      calls.push_back({.kind = kind,
                       .dtype = count % 2 == 0 ? DType::f32 : DType::bf16,
                       .op = calls.size() % 2 == 0 ? ReduceOp::avg : ReduceOp::max,
                       .count = count,
                       .root = static_cast<int>(calls.size()) % group.size(),
                       .in_place = calls.size() % 3 == 0,
                       .memory = static_cast<Memory>(calls.size() % 4)});
    }
  }
  std::size_t largest = 0;
  for (const auto& call : calls) largest = std::max(largest, largest_buffer(call, group.size()));
  conformance::TestBuffers buffers(group, largest);
  for (const auto& call : calls) {
    run_and_check(group, call, values, buffers, true);
    group.barrier();
    require(!::testing::Test::HasFailure(), "a wrong result: see above");
  }
}

LOCKSTEP_PROCESS_ROLE(every_collective) {
  const NothingLeftBehind nothing;
  {
    const auto group = join_world();
    run_every_collective(*group);
  }
  nothing.check();
  return 0;
}

class Processes : public ::testing::TestWithParam<int> {};

TEST_P(Processes, RunEveryCollectiveOnOneHost) {
  ProcessSet ranks = start_ranks(GetParam(), "every_collective");
  expect_success(ranks);
}

// Every rank on a host of its own, from the engine's point of view.
TEST_P(Processes, RunEveryCollectiveOverTcp) {
  ProcessSet ranks = start_ranks(GetParam(), "every_collective", {.rank_variables = [](int rank) {
                                   return Environment{{"LOCKSTEP_HOST_ID", std::to_string(rank)}};
                                 }});
  expect_success(ranks);
}

// Subgroups of even and odd ranks work while the world does, each driven by its own thread.
LOCKSTEP_PROCESS_ROLE(subgroups_beside_world) {
  const NothingLeftBehind nothing;
  {
    const auto world = join_world();
    const int parity = world->rank() % 2;
    const auto half = world->split(parity);
    require(half->size() == (world->size() + 1 - parity) / 2, "the half has the wrong size");
    std::thread in_half([&] {
      std::vector<std::int64_t> sum(5000);
      for (int turn = 0; turn < 50; ++turn) {
        std::fill(sum.begin(), sum.end(), world->rank());
        half->all_reduce(std::span(sum));
        std::int64_t expected = 0;
        for (int rank = parity; rank < world->size(); rank += 2) expected += rank;
        EXPECT_EQ(sum.front(), expected);
        EXPECT_EQ(sum.back(), expected);
      }
    });
    std::vector<std::int64_t> sum(20000);
    for (int turn = 0; turn < 50; ++turn) {
      std::fill(sum.begin(), sum.end(), 1);
      world->all_reduce(std::span(sum));
      EXPECT_EQ(sum.back(), world->size());
    }
    in_half.join();
    // The same list again is another group; a list in another order has other ranks.
    std::vector<int> backwards(static_cast<std::size_t>(world->size()));
    std::iota(backwards.rbegin(), backwards.rend(), 0);
    const auto first = world->new_group(backwards);
    const auto second = world->new_group(backwards);
    require(first->rank() == world->size() - 1 - world->rank(), "the order of the list is ignored");
    first->barrier();
    second->barrier();
  }
  nothing.check();
  return ::testing::Test::HasFailure() ? 1 : 0;
}

TEST_P(Processes, RunSubgroupsAlongsideTheWorld) {
  ProcessSet ranks = start_ranks(GetParam(), "subgroups_beside_world");
  expect_success(ranks);
}

LOCKSTEP_PROCESS_ROLE(messages_in_a_ring) {
  const NothingLeftBehind nothing;
  {
    const auto group = join_world();
    const int next = (group->rank() + 1) % group->size();
    const int previous = (group->rank() + group->size() - 1) % group->size();
    for (const std::size_t count : {0, 1, 1000, 1000000}) {
      std::vector<float> out(count, static_cast<float>(group->rank()));
      std::vector<float> in(count, -1);
      // All send first: no rank waits for a receiver.
      const Work sent = group->send_async(std::span<const float>(out), next, 7);
      group->recv(std::span(in), previous, 7);
      sent.wait();
      for (const float value : in) require(value == static_cast<float>(previous), "a wrong element was received");
    }
    group->barrier();
  }
  nothing.check();
  return 0;
}

TEST_P(Processes, SendAroundARing) {
  ProcessSet ranks = start_ranks(GetParam(), "messages_in_a_ring");
  expect_success(ranks);
}

// Several threads issue at the same time, each to a group of its own and to its own tag.
LOCKSTEP_PROCESS_ROLE(asynchronous_from_threads) {
  const NothingLeftBehind nothing;
  {
    const auto world = join_world();
    constexpr int kThreads = 3;
    std::vector<int> all_ranks(static_cast<std::size_t>(world->size()));
    std::iota(all_ranks.begin(), all_ranks.end(), 0);
    std::vector<std::shared_ptr<Communicator>> groups;
    for (int i = 0; i < kThreads; ++i) groups.push_back(world->new_group(all_ranks));
    std::atomic<int> continuations{0};
    std::vector<std::thread> threads;
    for (const auto& group : groups) {
      threads.emplace_back([&, group] {
        std::vector<std::vector<float>> data(20, std::vector<float>(3000, 1));
        std::vector<Work> works;
        for (auto& values : data) {
          works.push_back(group->all_reduce_async(std::span(values)));
          works.back().then([&](const Status& status) { continuations += status.ok() ? 1 : 0; });
        }
        for (const auto& work : works) work.wait();
        for (const auto& values : data) EXPECT_EQ(values.back(), static_cast<float>(world->size()));
      });
    }
    for (auto& thread : threads) thread.join();
    require(continuations == kThreads * 20, "a continuation did not run before its wait returned");
    world->barrier();
  }
  nothing.check();
  return ::testing::Test::HasFailure() ? 1 : 0;
}

TEST_P(Processes, IssueAsynchronouslyFromSeveralThreads) {
  ProcessSet ranks = start_ranks(GetParam(), "asynchronous_from_threads");
  expect_success(ranks);
}

INSTANTIATE_TEST_SUITE_P(Ranks, Processes, ::testing::Values(2, 3, 4, 5, 8));

}  // namespace
}  // namespace lockstep::testing
