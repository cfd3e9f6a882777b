// All-reduce, reduce and reduce_scatter over streams: the promised bits, on every rank, for every
// dtype, op, number of ranks and count.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "collectives/stream/algorithms.h"
#include "collectives/testing/reference_kernels.h"
#include "collectives/testing/stream_test_group.h"

namespace lockstep {
namespace {

using kernels_test::allowed;
using kernels_test::Bytes;
using kernels_test::expected;
using kernels_test::hard_inputs;
using kernels_test::kDTypes;
using kernels_test::kOps;
using stream_test::GroupSetup;
using stream_test::LinkKind;
using stream_test::StreamTestGroup;

struct Algorithm {
  const char* name;
  StreamFunction function;
  bool in_ring_order;
};
constexpr Algorithm kRing{"ring", stream_ring, true};
constexpr Algorithm kDirect{"direct", stream_direct, false};
constexpr Algorithm kPair{"pair", stream_pair, false};
constexpr Algorithm kSmall{"small", stream_small, false};
constexpr Algorithm kSmallOversubscribed{"small_oversubscribed", stream_small_oversubscribed, false};

bool ring_takes(DType dtype) { return element_size(dtype) >= 4; }

// Reduced in the order that the algorithm promises.
Bytes expected_all_reduce(const Algorithm& algorithm, DType dtype, ReduceOp op, const std::vector<Bytes>& inputs,
                          std::size_t count) {
  const std::size_t n = inputs.size();
  const int divisor = op == ReduceOp::avg ? static_cast<int>(n) : 1;
  if (!algorithm.in_ring_order) return expected(dtype, op, inputs, count, divisor);
  Bytes result;
  for (std::size_t c = 0; c < n; ++c) {
    const ByteRange range = chunk_of(count, element_size(dtype), n, c);
    std::vector<Bytes> in_order;
    for (std::size_t i = 0; i < n; ++i) {
      const Bytes& input = inputs[(c + i) % n];
      const auto first = input.begin() + static_cast<std::ptrdiff_t>(range.begin);
      in_order.emplace_back(first, first + static_cast<std::ptrdiff_t>(range.size));
    }
    const Bytes chunk = expected(dtype, op, in_order, range.size / element_size(dtype), divisor);
    result.insert(result.end(), chunk.begin(), chunk.end());
  }
  return result;
}

// Plans operations, then runs them one after the other, without a barrier between them, and compares.
class Operations {
 public:
  explicit Operations(const GroupSetup& setup) : group_(setup) {}

  std::size_t size() const { return group_.size(); }

  void all_reduce(const Algorithm& algorithm, DType dtype, ReduceOp op, std::size_t count, bool in_place) {
    Planned& plan = add({.kind = OperationKind::all_reduce, .dtype = dtype, .op = op, .count = count},
                        algorithm.function, count, in_place);
    plan.name += fmt::format(" by {}", algorithm.name);
    const Bytes wanted = expected_all_reduce(algorithm, dtype, op, plan.inputs, count);
    for (std::size_t r = 0; r < size(); ++r) {
      plan.outputs.emplace_back(wanted.size());
      plan.wanted.push_back(wanted);
    }
  }

  void reduce(StreamFunction function, DType dtype, ReduceOp op, std::size_t count, std::size_t root, bool in_place) {
    Planned& plan = add({.kind = OperationKind::reduce,
                         .dtype = dtype,
                         .op = op,
                         .root = static_cast<std::int32_t>(root),
                         .count = count},
                        function, count, in_place);
    const Bytes wanted = expected_all_reduce(kDirect, dtype, op, plan.inputs, count);
    for (std::size_t r = 0; r < size(); ++r) {
      plan.outputs.emplace_back(r == root ? wanted.size() : 0);
      plan.wanted.push_back(r == root ? wanted : in_place ? plan.inputs[r] : Bytes());
    }
  }

  void reduce_scatter(DType dtype, ReduceOp op, std::size_t count, bool in_place) {
    Planned& plan = add({.kind = OperationKind::reduce_scatter, .dtype = dtype, .op = op, .count = count},
                        stream_direct, count * size(), in_place);
    const Bytes all = expected_all_reduce(kDirect, dtype, op, plan.inputs, count * size());
    const auto chunk_bytes = static_cast<std::ptrdiff_t>(count * element_size(dtype));
    for (std::size_t r = 0; r < size(); ++r) {
      const auto first = all.begin() + static_cast<std::ptrdiff_t>(r) * chunk_bytes;
      plan.outputs.emplace_back(count * element_size(dtype));
      plan.wanted.emplace_back(first, first + chunk_bytes);
    }
  }

  void run() {
    const auto results = group_.run([&](std::size_t rank, StreamTransport& streams, WaitScope& scope) {
      for (Planned& plan : planned_) {
        const CollectiveCall call = call_of(plan, rank);
        const StreamTask task = whole_group(call, static_cast<int>(rank), streams.all_ranks());
        LOCKSTEP_RETURN_IF_ERROR(plan.function(task, streams, scope).with_context(plan.name));
      }
      return Status();
    });
    for (const Status& status : results) ASSERT_TRUE(status.ok()) << status.to_string();
    for (Planned& plan : planned_) {
      for (std::size_t r = 0; r < size(); ++r) {
        // In place the result is a part of the input, or all of it.
        const std::byte* result = plan.in_place && plan.descriptor.kind == OperationKind::reduce
                                      ? plan.inputs[r].data()
                                      : call_of(plan, r).output;
        ASSERT_TRUE(std::equal(plan.wanted[r].begin(), plan.wanted[r].end(), result))
            << plan.name << ", rank " << r << " of " << size();
      }
    }
    planned_.clear();
  }

 private:
  struct Planned {
    OpDescriptor descriptor;
    StreamFunction function;
    bool in_place;
    std::string name;
    std::vector<Bytes> inputs;   // by rank
    std::vector<Bytes> outputs;  // by rank; unused in place
    std::vector<Bytes> wanted;   // by rank
  };

  Planned& add(OpDescriptor descriptor, StreamFunction function, std::size_t input_count, bool in_place) {
    descriptor.sequence = ++sequence_;
    Planned plan{descriptor, function, in_place, {}, {}, {}, {}};
    plan.name = fmt::format("{} {}", describe(descriptor), in_place ? "in place" : "out of place");
    for (std::size_t r = 0; r < size(); ++r) {
      plan.inputs.push_back(hard_inputs(descriptor.dtype, input_count, 1000 * sequence_ + r));
    }
    return planned_.emplace_back(std::move(plan));
  }

  static CollectiveCall call_of(Planned& plan, std::size_t rank) {
    CollectiveCall call;
    call.descriptor = plan.descriptor;
    call.input = plan.inputs[rank].data();
    const bool is_root = plan.descriptor.root < 0 || static_cast<std::size_t>(plan.descriptor.root) == rank;
    if (!is_root) return call;
    const std::size_t own =
        plan.descriptor.kind == OperationKind::reduce_scatter ? rank * plan.outputs[rank].size() : 0;
    call.output = plan.in_place ? plan.inputs[rank].data() + own : plan.outputs[rank].data();
    return call;
  }

  StreamTestGroup group_;
  std::uint64_t sequence_ = 0;
  std::vector<Planned> planned_;
};

std::vector<std::size_t> counts_around(std::size_t n) { return {0, 1, n - 1, n, n + 1, 1000, 100003}; }

// Small segments and stripes, so that even modest counts use all slots and connections.
StreamOptions small_sizes() { return {.stripe_bytes = 1000, .segment_bytes = 4096, .call_bytes = 10000}; }

class StreamReduction : public ::testing::TestWithParam<int> {
 protected:
  GroupSetup setup(int streams, LinkKind kind = LinkKind::tcp) const {
    return {.size = GetParam(), .kind = kind, .streams = streams, .options = small_sizes()};
  }
  std::vector<Algorithm> algorithms() const {
    std::vector<Algorithm> all{kRing, kDirect, kSmall, kSmallOversubscribed};
    if (GetParam() <= 2) all.push_back(kPair);
    return all;
  }
};

TEST_P(StreamReduction, AllReduceGivesThePromisedBitsForEveryDtypeAndOp) {
  Operations operations(setup(1));
  bool in_place = false;
  for (const DType dtype : kDTypes) {
    for (const ReduceOp op : kOps) {
      if (!allowed(dtype, op)) continue;
      for (const Algorithm& algorithm : algorithms()) {
        if (algorithm.in_ring_order && !ring_takes(dtype)) continue;
        in_place = !in_place;
        operations.all_reduce(algorithm, dtype, op, 2003, in_place);
      }
    }
  }
  operations.run();
}

TEST_P(StreamReduction, AllReduceTakesEveryCountInPlaceAndOutOfPlace) {
  Operations operations(setup(1));
  for (const Algorithm& algorithm : algorithms()) {
    for (const std::size_t count : counts_around(operations.size())) {
      for (const bool in_place : {false, true}) {
        operations.all_reduce(algorithm, DType::f32, ReduceOp::avg, count, in_place);
        operations.all_reduce(algorithm, DType::i64, ReduceOp::sum, count, in_place);
      }
    }
  }
  operations.run();
}

TEST_P(StreamReduction, StripesOverSeveralConnections) {
  for (const LinkKind kind : {LinkKind::tcp, LinkKind::unix_socket}) {
    Operations operations(setup(3, kind));
    for (const Algorithm& algorithm : algorithms()) {
      for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{251}, std::size_t{100003}}) {
        operations.all_reduce(algorithm, DType::f32, ReduceOp::sum, count, true);
      }
    }
    ASSERT_NO_FATAL_FAILURE(operations.run());
  }
}

TEST_P(StreamReduction, LargeBuffersWithDefaultOptions) {
  Operations operations({.size = GetParam()});
  for (const Algorithm& algorithm : algorithms()) {
    for (const bool in_place : {false, true}) {
      operations.all_reduce(algorithm, DType::f32, ReduceOp::avg, 300001, in_place);
    }
  }
  operations.run();
}

TEST_P(StreamReduction, ReduceGivesTheRootTheResultAndKeepsOtherInputs) {
  Operations operations(setup(1));
  for (const StreamFunction function : {stream_direct, stream_reduce_small}) {
    for (const std::size_t root : {std::size_t{0}, operations.size() - 1}) {
      for (const std::size_t count : counts_around(operations.size())) {
        operations.reduce(function, DType::f32, ReduceOp::avg, count, root, false);
        operations.reduce(function, DType::bf16, ReduceOp::sum, count, root, true);
      }
    }
  }
  operations.run();
}

TEST_P(StreamReduction, ReduceScatterGivesEveryRankItsChunk) {
  Operations operations(setup(1));
  for (const std::size_t count : {0, 1, 7, 1000, 30011}) {
    for (const bool in_place : {false, true}) {
      operations.reduce_scatter(DType::f32, ReduceOp::sum, count, in_place);
      operations.reduce_scatter(DType::f16, ReduceOp::avg, count, in_place);
    }
  }
  operations.run();
}

TEST_P(StreamReduction, WithoutSpinningTheResultsAreTheSame) {
  StreamOptions options = small_sizes();
  options.spin = std::chrono::microseconds(0);
  options.send_buffer_bytes = 0;
  Operations operations({.size = GetParam(), .options = options});
  for (const Algorithm& algorithm : algorithms()) {
    for (const std::size_t count : counts_around(operations.size())) {
      operations.all_reduce(algorithm, DType::f64, ReduceOp::sum, count, true);
    }
  }
  operations.run();
}

INSTANTIATE_TEST_SUITE_P(Ranks, StreamReduction, ::testing::Values(1, 2, 3, 4, 5, 8, 11),
                         [](const auto& info) { return fmt::format("of{}", info.param); });

}  // namespace
}  // namespace lockstep
