// Every collective, type, operation, count and kind of memory, against a reference that works element
// by element.
#include "conformance/conformance.h"

namespace lockstep::conformance {
namespace {

constexpr Memory kMemories[] = {Memory::private_memory, Memory::registered, Memory::some_ranks_registered,
                                Memory::only_input_registered};

// Cycles through roots and kinds of memory, so that all of them are combined with all of the rest.
class Variation {
 public:
  explicit Variation(int ranks) : ranks_(ranks) {}
  void add(std::vector<Call>& calls, Call call) {
    call.memory = kMemories[turn_ % std::size(kMemories)];
    call.root = static_cast<int>(turn_ / std::size(kMemories)) % ranks_;
    ++turn_;
    calls.push_back(call);
  }

 private:
  const int ranks_;
  std::size_t turn_ = 0;
};

TEST_P(Conformance, ReductionsOfEveryTypeAndOperation) {
  Values hard(size(), 1, true);
  Values whole_numbers(size(), 2, false);
  std::vector<Call> in_rank_order;
  std::vector<Call> in_any_order;  // floating-point all_reduce between hosts may use a ring
  Variation variation(size());
  std::size_t turn = 0;
  for (const std::size_t count : counts()) {
    for (const auto kind : {Kind::all_reduce, Kind::reduce, Kind::reduce_scatter}) {
      for (const auto dtype : kernels_test::kDTypes) {
        for (const auto op : kernels_test::kOps) {
          if (!kernels_test::allowed(dtype, op)) continue;
          ++turn;
          if (count == kLargest && turn % 13 != static_cast<std::size_t>(size())) continue;
          const bool any_order = kind == Kind::all_reduce && !one_host() && !is_integer(dtype);
          variation.add(any_order ? in_any_order : in_rank_order,
                        {.kind = kind, .dtype = dtype, .op = op, .count = count, .in_place = turn % 3 == 0});
        }
      }
    }
  }
  const auto groups = connect_ranks(connection(), size(), options());
  run_all(groups, in_rank_order, hard);
  run_all(groups, in_any_order, whole_numbers);
}

TEST_P(Conformance, MovesOfEveryType) {
  Values values(size(), 3, true);
  std::vector<Call> calls;
  Variation variation(size());
  std::size_t turn = 0;
  for (const std::size_t count : counts()) {
    for (const auto kind :
         {Kind::broadcast, Kind::all_gather, Kind::all_gather_v, Kind::gather, Kind::scatter, Kind::all_to_all}) {
      for (const auto dtype : kernels_test::kDTypes) {
        ++turn;
        if (count == kLargest && turn % 7 != 0) continue;
        variation.add(calls, {.kind = kind, .dtype = dtype, .count = count, .in_place = turn % 3 == 0});
      }
    }
  }
  run_all(connect_ranks(connection(), size(), options()), calls, values);
}

// With these values, different orders of summation give different results.
TEST_P(Conformance, TheSameBitsOnAllRanksAndInEveryRun) {
  Values values(size(), 4, true);
  std::vector<Call> calls;
  Variation variation(size());
  std::size_t turn = 0;
  for (const std::size_t count : {std::size_t{1}, std::size_t{17}, std::size_t{4097}, kLargest}) {
    for (const auto dtype : {DType::f32, DType::f64, DType::f16, DType::bf16}) {
      for (const auto op : {ReduceOp::sum, ReduceOp::avg, ReduceOp::prod, ReduceOp::min, ReduceOp::max}) {
        ++turn;
        if (count == kLargest && turn % 5 != 0) continue;
        variation.add(calls, {.dtype = dtype, .op = op, .count = count, .in_place = turn % 2 == 0});
      }
    }
  }
  const auto first_run = run_all(connect_ranks(connection(), size(), options()), calls, values, one_host());
  const auto second_run = run_all(connect_ranks(connection(), size(), options()), calls, values, one_host());
  for (std::size_t i = 0; i < calls.size(); ++i) {
    for (std::size_t rank = 0; rank < first_run.size(); ++rank) {
      ASSERT_EQ(first_run[rank].at(i), first_run[0].at(i)) << describe(calls[i]) << ": ranks 0 and " << rank;
      ASSERT_EQ(first_run[rank].at(i), second_run[rank].at(i)) << describe(calls[i]) << ": two runs on rank " << rank;
    }
  }
}

TEST_P(Conformance, HalfPrecisionIsRoundedOnce) {
  Values values(size(), 5, true);
  std::vector<Call> calls;
  for (const std::size_t count : {17, 4097, 50021}) {
    for (const auto dtype : {DType::f16, DType::bf16}) {
      for (const auto op : {ReduceOp::sum, ReduceOp::avg}) {
        calls.push_back({.dtype = dtype, .op = op, .count = count, .memory = kMemories[calls.size() % 3]});
      }
    }
  }
  run_all(connect_ranks(connection(), size(), options()), calls, values);
}

}  // namespace
}  // namespace lockstep::conformance
