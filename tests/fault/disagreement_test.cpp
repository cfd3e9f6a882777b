// Ranks that call different operations, and abort(): an error on all ranks, soon.
#include <thread>
#include <tuple>

#include "fault/failing_rank.h"

namespace lockstep::testing {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;

CommunicatorOptions options() { return {.init_timeout = 60s, .timeout = 30s}; }

// What ranks 0 and 2 call, and what rank 1 calls instead, named by the difference.
struct Difference {
  const char* name;
  void (*most)(Communicator&, Buffer);
  void (*other)(Communicator&, Buffer);
  const char* most_text;
  const char* other_text;
};

Buffer shorter(Buffer data) { return {data.data, data.count - 1, data.dtype}; }
Buffer as_i32(Buffer data) { return {data.data, data.count, DType::i32}; }
void sum(Communicator& group, Buffer data) { group.all_reduce(data); }
void cast(Communicator& group, Buffer data) { group.broadcast(data, 0); }

const Difference kDifferences[] = {
    {"kind", sum, cast, "all_reduce(count N, f32, sum) #2", "broadcast(count N, f32, root 0) #2"},
    {"kind_barrier", sum, [](Communicator& group, Buffer) { group.barrier(); }, "all_reduce(count N, f32, sum) #2",
     "barrier #2"},
    {"dtype", sum, [](Communicator& group, Buffer data) { group.all_reduce(as_i32(data)); },
     "all_reduce(count N, f32, sum) #2", "all_reduce(count N, i32, sum) #2"},
    {"op", sum, [](Communicator& group, Buffer data) { group.all_reduce(data, {.op = ReduceOp::max}); },
     "all_reduce(count N, f32, sum) #2", "all_reduce(count N, f32, max) #2"},
    {"count", sum, [](Communicator& group, Buffer data) { group.all_reduce(shorter(data)); },
     "all_reduce(count N, f32, sum) #2", "all_reduce(count M, f32, sum) #2"},
    {"root", cast, [](Communicator& group, Buffer data) { group.broadcast(data, 1); },
     "broadcast(count N, f32, root 0) #2", "broadcast(count N, f32, root 1) #2"},
    {"count_of_broadcast", cast, [](Communicator& group, Buffer data) { group.broadcast(shorter(data), 0); },
     "broadcast(count N, f32, root 0) #2", "broadcast(count M, f32, root 0) #2"},
};

LOCKSTEP_PROCESS_ROLE(disagrees) {
  return run_until_failure(options(), [](Communicator& group) {
    const auto& difference = kDifferences[std::atoi(std::getenv("TEST_DIFFERENCE"))];
    std::vector<float> data(static_cast<std::size_t>(std::atol(std::getenv("TEST_COUNT"))));
    group.barrier();
    print_mark("ready");
    (group.rank() == 1 ? difference.other : difference.most)(group, std::span(data));
    group.barrier();  // for a rank that was done before the others detected the mismatch
  });
}

std::string with_counts(std::string text, long count) {
  for (const auto& [letter, value] : {std::pair('N', count), std::pair('M', count - 1)}) {
    if (const auto at = text.find(std::string("count ") + letter); at != std::string::npos) {
      text.replace(at + 6, 1, std::to_string(value));
    }
  }
  return text;
}

enum class Layout { host, tcp, two_hosts };

class Disagreement : public ::testing::TestWithParam<std::tuple<int, Layout, long>> {};

TEST_P(Disagreement, FailsOnAllRanksAndNamesBothSides) {
  const auto& [index, layout, count] = GetParam();
  const auto& difference = kDifferences[index];
  const int size = layout == Layout::two_hosts ? 4 : 3;
  ProcessSet ranks =
      start_ranks(size, "disagrees",
                  {.environment = {{"TEST_DIFFERENCE", std::to_string(index)}, {"TEST_COUNT", std::to_string(count)}},
                   .rank_variables = [layout = layout](int rank) {
                     if (layout == Layout::two_hosts) rank /= 2;
                     return variables_for(layout == Layout::host ? Wire::host : Wire::tcp, rank);
                   }});
  for (int rank = 0; rank < size; ++rank) {
    const Failure failure = await_failure(ranks, rank, 30);
    EXPECT_THAT(failure.text,
                AllOf(HasSubstr("mismatch"), HasSubstr("rank 1 called"), ContainsRegex("rank [023] called"),
                      HasSubstr(with_counts(difference.most_text, count)),
                      HasSubstr(with_counts(difference.other_text, count))));
  }
  expect_success(ranks, 30);
}

std::string name_of(const ::testing::TestParamInfo<Disagreement::ParamType>& info) {
  const auto& [index, layout, count] = info.param;
  constexpr const char* kLayouts[] = {"host", "tcp", "two_hosts"};
  return fmt::format("{}_{}_{}", kDifferences[index].name, kLayouts[static_cast<int>(layout)], count);
}

INSTANTIATE_TEST_SUITE_P(All, Disagreement,
                         ::testing::Combine(::testing::Range(0, static_cast<int>(std::size(kDifferences))),
                                            ::testing::Values(Layout::host, Layout::tcp, Layout::two_hosts),
                                            ::testing::Values(10L, 200000L)),
                         name_of);

LOCKSTEP_PROCESS_ROLE(aborted_by_rank_1) {
  return run_until_failure(options(), [](Communicator& group) {
    group.barrier();
    if (group.rank() == 1) {
      std::vector<float> data(10);
      const Work never = group.recv_async(std::span(data), 0);
      std::thread([&] { group.abort("the validation loss is not a number"); }).join();
      never.wait();
    }
    group.barrier();
  });
}

class Abort : public ::testing::TestWithParam<Wire> {};

TEST_P(Abort, FromAnotherThreadEndsPendingOperationsOnAllRanks) {
  ProcessSet ranks =
      start_ranks(3, "aborted_by_rank_1", {.rank_variables = [](int rank) { return variables_for(GetParam(), rank); }});
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_THAT(
        await_failure(ranks, rank, 30).text,
        AllOf(HasSubstr("aborted"), NamesRank(1, ranks.pid(1)), HasSubstr("the validation loss is not a number"),
              ContainsRegex(rank == 1 ? "recv from rank 0" : "barrier #[12] of")));
  }
  expect_success(ranks, 30);
}

INSTANTIATE_TEST_SUITE_P(Wires, Abort, ::testing::Values(Wire::host, Wire::tcp),
                         [](const auto& info) { return to_string(info.param); });

}  // namespace
}  // namespace lockstep::testing
