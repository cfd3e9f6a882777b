// Each algorithm, forced for every operation that it supports.
#include "conformance/conformance.h"

namespace lockstep::conformance {
namespace {

std::vector<Call> calls_for(int size, std::size_t largest) {
  std::vector<Call> calls;
  std::size_t turn = 0;
  for (const std::size_t count : {std::size_t{0}, std::size_t{1}, static_cast<std::size_t>(size) + 1, std::size_t{1000},
                                  std::size_t{4097}, largest}) {
    for (const auto kind : {Kind::all_reduce, Kind::reduce, Kind::reduce_scatter, Kind::broadcast, Kind::all_gather,
                            Kind::all_gather_v, Kind::gather, Kind::scatter, Kind::all_to_all}) {
      for (const auto dtype : {DType::f32, DType::bf16, DType::i8}) {
        ++turn;
        if (count == largest && turn % 3 != 0) continue;
        calls.push_back({.kind = kind,
                         .dtype = dtype,
                         .op = turn % 2 == 0 ? ReduceOp::avg : ReduceOp::max,
                         .count = count,
                         .root = static_cast<int>(turn) % size,
                         .in_place = turn % 4 == 0,
                         .memory = static_cast<Memory>(turn % 3)});
      }
    }
  }
  return calls;
}

TEST_P(Conformance, EveryAlgorithm) {
  std::vector<std::string> names{"inline", "shared", "staged"};
  if (!one_host()) {
    names = {"small", "direct", "ring", "tree", "chain"};
    if (size() == 2) names.emplace_back("pair");
    if (size() > 2 && connection() != Connection::tcp) names.emplace_back("hierarchical");
  }
  const auto calls = calls_for(size(), kLargest);
  Values whole_numbers(size(), 6, false);
  Values hard(size(), 7, true);
  for (const auto& name : names) {
    SCOPED_TRACE(name);
    const auto groups = connect_ranks(connection(), size(), options(name));
    EXPECT_NE(groups[0]->algorithm_table().find(name + " (override)"), std::string::npos)
        << groups[0]->algorithm_table();
    run_all(groups, calls, whole_numbers);
    // Bits: in any order, but the same on all ranks.
    std::vector<Call> sums;
    for (const std::size_t count : {3, 4097, 50021}) sums.push_back({.count = count, .in_place = true});
    const auto hashes = run_all(groups, sums, hard, one_host());
    for (const auto& of_rank : hashes) EXPECT_EQ(of_rank, hashes[0]);
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace lockstep::conformance
