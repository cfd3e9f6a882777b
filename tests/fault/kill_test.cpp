// kill -9 of a rank in every phase: every other rank gets an error in time, and the error names the
// rank, its host and pid, the operation and its number.
#include <thread>
#include <tuple>

#include "fault/failing_rank.h"

namespace lockstep::testing {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;

CommunicatorOptions options() { return {.init_timeout = 60s, .timeout = 60s}; }
int victim() { return std::atoi(std::getenv("TEST_VICTIM")); }
bool is_victim(const Communicator& group) { return group.rank() == victim(); }

// Waits for the kill; the victim never sends what the others wait for.
void wait_for_the_end(Communicator& group) {
  print_mark("ready");
  const auto until = in_seconds(60);
  while (group.health().ok() && !until.expired()) std::this_thread::sleep_for(1ms);
}

void reduce_for_ever(Communicator& group, Buffer data) {
  for (int turn = 0;; ++turn) {
    group.all_reduce(data);
    if (turn == 2) print_mark("ready");
  }
}

LOCKSTEP_PROCESS_ROLE(idle) {
  return run_until_failure(options(), [](Communicator& group) {
    group.barrier();
    wait_for_the_end(group);
    group.barrier();
  });
}

LOCKSTEP_PROCESS_ROLE(small_operations) {
  return run_until_failure(options(), [](Communicator& group) {
    float value = 1;
    reduce_for_ever(group, Buffer(&value, 1, DType::f32));
  });
}

// Long enough that the kill happens in the middle of an operation. TSan makes every access some twenty times as slow.
#ifdef __SANITIZE_THREAD__
constexpr std::size_t kLargeBytes = std::size_t{8} << 20;
#else
constexpr std::size_t kLargeBytes = std::size_t{64} << 20;
#endif

LOCKSTEP_PROCESS_ROLE(large_private_operations) {
  return run_until_failure(options(), [](Communicator& group) {
    std::vector<float> data(kLargeBytes / sizeof(float));
    reduce_for_ever(group, std::span(data));
  });
}

LOCKSTEP_PROCESS_ROLE(large_registered_operations) {
  return run_until_failure(options(), [](Communicator& group) {
    const auto memory = group.allocate(kLargeBytes);
    reduce_for_ever(group, Buffer(memory->data(), kLargeBytes / sizeof(float), DType::f32));
  });
}

// The victim works in a subgroup, while the world waits.
LOCKSTEP_PROCESS_ROLE(subgroup_operations) {
  return run_until_failure(options(), [](Communicator& world) {
    const auto subgroup = world.split(0, -world.rank());
    std::vector<float> data(1000);
    const Status failure = error_of([&] { reduce_for_ever(*subgroup, std::span(data)); });
    require(failure.code() == StatusCode::peer_lost, "in the subgroup: " + failure.to_string());
    // The subgroup numbers its ranks differently, and so does its error.
    print_mark("subgroup: " + failure.to_string());
    world.barrier();
  });
}

LOCKSTEP_PROCESS_ROLE(pending_asynchronous_operations) {
  return run_until_failure(options(), [](Communicator& group) {
    if (is_victim(group)) return wait_for_the_end(group);
    std::vector<std::vector<float>> data(5, std::vector<float>(10000));
    std::vector<Work> works;
    for (auto& values : data) works.push_back(group.all_reduce_async(std::span(values)));
    print_mark("ready");
    for (const auto& work : works) {
      const Status status = work.wait(in_seconds(60));
      require(status.code() == StatusCode::peer_lost, "a pending operation: " + status.to_string());
    }
    works.back().wait();
  });
}

// Some ranks receive what is never sent, one sends what is never received.
LOCKSTEP_PROCESS_ROLE(messages) {
  return run_until_failure(options(), [](Communicator& group) {
    if (is_victim(group)) return wait_for_the_end(group);
    std::vector<float> data(kLargeBytes / sizeof(float));
    const bool sends = group.rank() == (victim() + 1) % group.size();
    const Work work = sends ? group.send_async(std::span<const float>(data), victim(), 3)
                            : group.recv_async(std::span(data), victim(), 3);
    print_mark("ready");
    work.wait();
  });
}

// The victim destroys its group, but cannot finish: one of its messages is not received. The others wait.
LOCKSTEP_PROCESS_ROLE(teardown) {
  if (std::atoi(std::getenv("RANK")) == victim()) {
    auto group = Communicator::create({.group = options()});
    std::vector<float> data(kLargeBytes / sizeof(float));
    const Work work = group->send_async(std::span<const float>(data), (victim() + 1) % group->size());
    print_mark("joined");
    print_mark("ready");
    group.reset();
    return 0;
  }
  return run_until_failure(options(), [](Communicator& group) {
    print_mark("ready");
    group.barrier();
  });
}

struct Phase {
  const char* role;
  const char* operation;  // as a regular expression, in the survivors' errors
};

class Kill : public ::testing::TestWithParam<std::tuple<Phase, Wire, int>> {};

TEST_P(Kill, IsDetectedInTimeAndNamed) {
  const auto& [phase, wire, who] = GetParam();
  constexpr int kRanks = 3;
  ProcessSet ranks = start_ranks(kRanks, phase.role,
                                 {.environment = {{"TEST_VICTIM", std::to_string(who)}},
                                  .rank_variables = [wire = wire](int rank) { return variables_for(wire, rank); }});
  for (int rank = 0; rank < kRanks; ++rank) {
    ASSERT_TRUE(ranks.wait_for_line(rank, "ready", in_seconds(60))) << ranks.report();
  }
  const StallWatch watch;
  ASSERT_TRUE(ranks.kill(who, SIGKILL));
  std::vector<Failure> failures;
  for (int rank = 0; rank < kRanks; ++rank) {
    if (rank == who) continue;
    failures.push_back(await_failure(ranks, rank, 20));
    EXPECT_THAT(failures.back().text,
                AllOf(HasSubstr("peer_lost"), NamesRank(who, ranks.pid(who)), ContainsRegex(phase.operation)));
  }
  report_detection(fmt::format("kill -9 of rank {}, {}, {}", who, phase.role, to_string(wire)), watch, failures,
                   promised_seconds(wire));
  ASSERT_TRUE(ranks.wait_all(in_seconds(20))) << ranks.report();
  for (int rank = 0; rank < kRanks; ++rank) {
    if (rank == who) continue;
    EXPECT_TRUE(ranks.exit_status(rank)->success()) << ranks.report();
  }
}

constexpr const char* kAllReduce = "all_reduce\\(count [0-9]+, f32, sum\\) #[0-9]+ of group 'world'";
constexpr Phase kPhases[] = {
    {"idle", "barrier #2 of group 'world'"},
    {"small_operations", kAllReduce},
    {"large_private_operations", kAllReduce},
    {"large_registered_operations", kAllReduce},
    {"subgroup_operations", "barrier #2 of group 'world'"},
    {"pending_asynchronous_operations", "all_reduce\\(count 10000, f32, sum\\) #5 of group 'world'"},
    {"messages", "(send to|recv from) rank [0-9] \\(count [0-9]+, f32, tag 3\\) of group 'world'"},
    {"teardown", "barrier #1 of group 'world'"},
};

std::string name_of(const ::testing::TestParamInfo<Kill::ParamType>& info) {
  const auto& [phase, wire, who] = info.param;
  return fmt::format("{}_{}_rank{}", phase.role, to_string(wire), who);
}

INSTANTIATE_TEST_SUITE_P(Phases, Kill,
                         ::testing::Combine(::testing::ValuesIn(kPhases), ::testing::Values(Wire::host, Wire::tcp),
                                            ::testing::Values(0, 1)),
                         name_of);

}  // namespace
}  // namespace lockstep::testing
