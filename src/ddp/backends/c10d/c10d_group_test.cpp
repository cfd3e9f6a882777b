// Gloo behind ProcessGroup: every collective against the result computed in one place, and how it fails.
#include "ddp/backends/c10d/c10d_group.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ddp/testing/test_ranks.h"
#include "support/process_resources.h"
#include "support/process_set.h"

#if LOCKSTEP_HAS_C10D

namespace lockstep::detail {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using testing::Group;
using ::testing::HasSubstr;

const at::ScalarType kTypes[] = {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kChar,
                                 at::kByte,  at::kInt,    at::kLong, at::kBool};
const std::int64_t kCounts[] = {0, 1, 3, 1000};

// Small whole numbers: exact in every type, and different on every rank.
at::Tensor values(int rank, std::int64_t count, at::ScalarType type) {
  const at::Tensor numbers = at::arange(count, at::kLong).remainder(5).add(rank + 1);
  return type == at::kBool ? numbers.remainder(2).to(at::kBool) : numbers.to(type);
}

at::Tensor reduced(int size, std::int64_t count, at::ScalarType type, ReduceOp op) {
  at::Tensor result = values(0, count, type).to(at::kLong);
  for (int rank = 1; rank < size; ++rank) {
    const at::Tensor other = values(rank, count, type).to(at::kLong);
    switch (op) {
      case ReduceOp::sum:
      case ReduceOp::avg: result = result + other; break;
      case ReduceOp::prod: result = result * other; break;
      case ReduceOp::min: result = at::minimum(result, other); break;
      case ReduceOp::max: result = at::maximum(result, other); break;
      case ReduceOp::bit_and: result = result.bitwise_and(other); break;
      case ReduceOp::bit_or: result = result.bitwise_or(other); break;
      case ReduceOp::bit_xor: result = result.bitwise_xor(other); break;
    }
  }
  if (op != ReduceOp::avg) return result.to(type);
  return at::isIntegralType(type, true) ? result.div(size, "trunc").to(type)
                                        : result.to(at::kDouble).div(size).to(type);
}

std::vector<ReduceOp> operations_for(at::ScalarType type) {
  if (type == at::kBool) return {ReduceOp::min, ReduceOp::max, ReduceOp::bit_xor};
  std::vector<ReduceOp> operations{ReduceOp::sum, ReduceOp::avg, ReduceOp::prod, ReduceOp::min, ReduceOp::max};
  if (at::isIntegralType(type, false)) {
    operations.insert(operations.end(), {ReduceOp::bit_and, ReduceOp::bit_or, ReduceOp::bit_xor});
  }
  return operations;
}

void expect_same(const at::Tensor& actual, const at::Tensor& expected, const std::string& what) {
  const bool floats = at::isFloatingType(expected.scalar_type());
  EXPECT_TRUE(floats ? at::allclose(actual.to(at::kDouble), expected.to(at::kDouble), 1e-6, 1e-6)
                     : actual.equal(expected))
      << what << ' ' << c10::toString(expected.scalar_type()) << "\n"
      << actual << "\nexpected\n"
      << expected;
}

class GlooRanks : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    if (const Status status = check_backend("gloo"); !status.ok()) GTEST_SKIP() << status.message();
  }
  int size() const { return GetParam(); }
  void run(const std::function<void(const Group&)>& body) const { testing::run_ranks(size(), body, "gloo"); }
};
INSTANTIATE_TEST_SUITE_P(Ranks, GlooRanks, ::testing::Values(1, 2, 3, 4, 5));

TEST_P(GlooRanks, ReduceEveryTypeWithEveryOperation) {
  run([](const Group& group) {
    EXPECT_EQ(group->backend(), "gloo");
    for (const at::ScalarType type : kTypes) {
      for (const ReduceOp op : operations_for(type)) {
        for (const std::int64_t count : kCounts) {
          const std::string what = std::string(lockstep::to_string(op)) + " of " + std::to_string(count);
          const at::Tensor expected = reduced(group->size(), count, type, op);
          const at::Tensor everywhere = values(group->rank(), count, type);
          group->all_reduce(everywhere, {.op = op}).wait();
          expect_same(everywhere, expected, "all_reduce " + what);
        }
        const int root = group->size() - 1;
        const at::Tensor at_root = values(group->rank(), 7, type);
        group->reduce(at_root, root, {.op = op}).wait();
        expect_same(at_root,
                    group->rank() == root ? reduced(group->size(), 7, type, op) : values(group->rank(), 7, type),
                    "reduce");
        const at::Tensor whole = values(group->rank(), 3 * group->size(), type), part = at::zeros({3}, type);
        group->reduce_scatter(whole, part, {.op = op}).wait();
        expect_same(part, reduced(group->size(), 3 * group->size(), type, op).narrow(0, 3 * group->rank(), 3),
                    "reduce_scatter");
        expect_same(whole, values(group->rank(), 3 * group->size(), type), "the input of reduce_scatter");
      }
    }
  });
}

TEST_P(GlooRanks, MoveEveryType) {
  run([](const Group& group) {
    const int size = group->size(), rank = group->rank();
    for (const at::ScalarType type : kTypes) {
      for (const std::int64_t count : kCounts) {
        for (int root : {0, size - 1}) {
          const at::Tensor sent = rank == root ? values(root, count, type) : at::zeros({count}, type);
          group->broadcast(sent, root, {}).wait();
          expect_same(sent, values(root, count, type), "broadcast");
        }
        std::vector<at::Tensor> all;
        for (int r = 0; r < size; ++r) all.push_back(values(r, count, type));
        const at::Tensor expected = at::cat(all);
        const at::Tensor own = values(rank, count, type);
        const at::Tensor gathered = at::zeros({size * count}, type);
        group->all_gather(own, gathered, {}).wait();
        expect_same(gathered, expected, "all_gather");

        const at::Tensor at_root = rank == 0 ? at::zeros({size * count}, type) : at::Tensor();
        group->gather(own, at_root, 0, {}).wait();
        if (rank == 0) expect_same(at_root, expected, "gather");
        const at::Tensor back = at::zeros({count}, type);
        group->scatter(at_root, back, 0, {}).wait();
        expect_same(back, own, "scatter");
      }
    }
  });
}

TEST_P(GlooRanks, GatherUnequalBlocks) {
  run([](const Group& group) {
    std::vector<std::size_t> counts;
    std::vector<at::Tensor> all;
    for (int rank = 0; rank < group->size(); ++rank) {
      counts.push_back(static_cast<std::size_t>(rank % 3) * 4);  // some have none
      all.push_back(values(rank, static_cast<std::int64_t>(counts.back()), at::kHalf));
    }
    const at::Tensor expected = at::cat(all), gathered = at::zeros_like(expected);
    group->all_gather_v(all[static_cast<std::size_t>(group->rank())], gathered, counts, {}).wait();
    expect_same(gathered, expected, "all_gather_v");
  });
}

TEST_P(GlooRanks, ExchangeBlocks) {
  run([](const Group& group) {
    const at::Tensor from = at::arange(group->size(), at::kInt).add(100 * group->rank());
    const at::Tensor to = at::zeros_like(from);
    group->all_to_all(from, to, {}).wait();
    expect_same(to, at::arange(group->size(), at::kInt).mul(100).add(group->rank()), "all_to_all");
  });
}

TEST_P(GlooRanks, SendInARing) {
  if (size() == 1) GTEST_SKIP() << "no other rank to send to";
  run([](const Group& group) {
    const int next = (group->rank() + 1) % group->size(),
              previous = (group->rank() + group->size() - 1) % group->size();
    const at::Tensor first = at::zeros({5}, at::kBFloat16), second = at::zeros({2}, at::kLong);
    const Work late = group->recv(second, previous, 2, {});  // the other way round than they are sent
    const Work early = group->recv(first, previous, 1, {});
    group->send(values(group->rank(), 5, at::kBFloat16), next, 1, {}).wait();
    group->send(values(group->rank(), 2, at::kLong), next, 2, {}).wait();
    late.wait();
    early.wait();
    expect_same(first, values(previous, 5, at::kBFloat16), "recv");
    expect_same(second, values(previous, 2, at::kLong), "recv");
  });
}

TEST_P(GlooRanks, FormSubgroups) {
  run([](const Group& group) {
    std::vector<int> reversed;
    for (int rank = group->size() - 1; rank >= 0; --rank) reversed.push_back(rank);
    const auto other = group->new_group(reversed, "reversed");
    EXPECT_EQ(other->rank(), group->size() - 1 - group->rank());
    EXPECT_EQ(other->backend(), "gloo");
    const at::Tensor sum = at::ones({4});
    other->all_reduce(sum, {}).wait();
    expect_same(sum, at::full({4}, static_cast<float>(group->size())), "sum");
    const at::Tensor again = at::ones({4});
    group->companion("beside")->all_reduce(again, {}).wait();
    expect_same(again, sum, "sum");
    group->barrier({}).wait();
  });
}

TEST_P(GlooRanks, ManyAtOnceCompleteInOrder) {
  run([](const Group& group) {
    std::vector<at::Tensor> tensors;
    std::vector<Work> works;
    std::vector<int> order;
    for (int i = 0; i < 40; ++i) {
      tensors.push_back(at::full({1 + 777 * (i % 5)}, static_cast<double>(i), at::kDouble));
      works.push_back(group->all_reduce(tensors.back(), {.op = ReduceOp::avg}));
      works.back().then([&order, i](const Status&) { order.push_back(i); });  // all on one thread
    }
    for (const Work& work : works) work.wait();
    for (int i = 0; i < 40; ++i) {
      EXPECT_EQ(order[static_cast<std::size_t>(i)], i);
      EXPECT_EQ(tensors[static_cast<std::size_t>(i)][0].item<double>(), i);
    }
  });
}

TEST_P(GlooRanks, LeaveNothingBehind) {
  run([](const Group& group) { group->barrier({}).wait(); });  // whatever stays once
  const auto before = testing::ProcessResources::now();
  run([](const Group& group) {
    group->all_reduce(at::ones({100}), {}).wait();
    group->companion("beside")->barrier({}).wait();
  });
  testing::errors_of_ranks(
      size(),
      [](const Group& group) {
        group->barrier({}).wait();
        if (group->rank() == 0) throw std::runtime_error("ends the group");
        group->all_reduce(at::ones({100}), {}).wait();
      },
      "gloo");
  const auto after = testing::ProcessResources::settle(before, testing::in_seconds(20));
  EXPECT_EQ(after, before) << describe(after);
}

class GlooGroup : public GlooRanks {
 protected:
  std::vector<std::string> errors(int size, const std::function<void(const Group&)>& body) {
    return testing::errors_of_ranks(size, body, "gloo");
  }
};
INSTANTIATE_TEST_SUITE_P(Once, GlooGroup, ::testing::Values(0));

TEST_P(GlooGroup, TakesOneBlockOfMemoryWhateverItsStrides) {
  testing::run_ranks(
      2,
      [](const Group& group) {
        const at::Tensor image = at::ones({2, 3, 4, 5}).contiguous(at::MemoryFormat::ChannelsLast);
        group->all_reduce(image, {}).wait();
        expect_same(image, at::full({2, 3, 4, 5}, 2.0F), "channels last");
        group->broadcast(at::ones({}, at::kDouble), 0, {}).wait();  // a scalar
      },
      "gloo");
}

TEST_P(GlooGroup, AReceiveThatWaitsDoesNotDelayASend) {
  testing::run_ranks(
      2,
      [](const Group& group) {
        const at::Tensor token = at::ones({1}), answer = at::zeros({1});
        if (group->rank() == 0) {
          const Work waiting = group->recv(answer, 1, 0, {});
          group->send(token, 1, 0, {}).wait();
          group->all_reduce(token, {}).wait();
          group->send(token, 1, 0, {}).wait();
          waiting.wait();
        } else {
          group->recv(answer, 0, 0, {}).wait();
          group->all_reduce(token, {}).wait();
          group->recv(answer, 0, 0, {}).wait();
          group->send(answer, 0, 0, {}).wait();
        }
      },
      "gloo");
}

TEST_P(GlooGroup, AbortReachesEveryRankWithItsReason) {
  const auto texts = errors(3, [](const Group& group) {
    const at::Tensor token = at::zeros({1});
    if (group->rank() == 1) {
      for (int rank : {0, 2}) group->recv(token, rank, 0, {}).wait();
      group->abort("the data has run out");
    } else {
      const Work pending = group->all_reduce(at::ones({1 << 20}), {});
      group->send(token, 1, 0, {}).wait();
      const Status outcome = pending.wait(testing::in_seconds(10));
      EXPECT_EQ(outcome.code(), StatusCode::aborted);
      EXPECT_THAT(outcome.message(),
                  AllOf(HasSubstr("all_reduce(count 1048576, f32, sum) #1"), HasSubstr("(backend \"gloo\")"),
                        HasSubstr("rank 1 ("), HasSubstr("aborted the group")));
    }
    EXPECT_FALSE(group->health().ok());
    group->barrier({});  // throws at once
  });
  for (const std::string& text : texts) EXPECT_THAT(text, HasSubstr("the data has run out"));
}

TEST_P(GlooGroup, ADeadlineNamesTheOperationAndTheMissingRank) {
  const auto texts = errors(3, [](const Group& group) {
    group->barrier({}).wait();
    if (group->rank() != 2) {
      group->all_reduce(at::ones({5}), {.timeout = 600ms}).wait();
      return;
    }
    const auto end = testing::in_seconds(20);
    while (group->health().ok() && !end.expired()) std::this_thread::sleep_for(5ms);
    throw_if_error(group->health());
  });
  for (const int rank : {0, 1}) {
    EXPECT_THAT(
        texts[static_cast<std::size_t>(rank)],
        AllOf(HasSubstr("timed_out"), HasSubstr("all_reduce(count 5, f32, sum) #2"), HasSubstr("reached its deadline"),
              HasSubstr("rank 2 ("), HasSubstr("did not reach this operation")));
    EXPECT_THAT(texts[static_cast<std::size_t>(rank)], ::testing::Not(HasSubstr("rank 1 (host")));
  }
  EXPECT_THAT(texts[2], HasSubstr("reached its deadline"));
}

TEST_P(GlooGroup, RanksThatCallDifferentOperationsAreNamed) {
  const auto texts = errors(3, [](const Group& group) {
    group->barrier({}).wait();
    if (group->rank() == 1) {
      group->broadcast(at::ones({5}), 1, {}).wait();  // which waits for nobody
      const auto end = testing::in_seconds(20);
      while (group->health().ok() && !end.expired()) std::this_thread::sleep_for(5ms);
      throw_if_error(group->health());
    }
    group->all_reduce(at::ones({7}), {}).wait();
  });
  for (const std::string& text : texts) {
    EXPECT_THAT(text, AllOf(HasSubstr("mismatch"), HasSubstr("called all_reduce(count 7, f32, sum) #2"),
                            HasSubstr("rank 1 called broadcast(count 5, f32, root 1) #2")));
  }
}

TEST_P(GlooGroup, AMessageThatIsNotSentReachesItsDeadline) {
  const auto texts = errors(2, [](const Group& group) {
    if (group->rank() == 0) group->recv(at::zeros({5}), 1, 7, {.timeout = 300ms}).wait();
    if (group->rank() == 1) group->barrier({}).wait();
  });
  EXPECT_THAT(texts[0], AllOf(HasSubstr("recv(count 5, Float, from rank 1, tag 7)"),
                              HasSubstr("the peer did not reach this operation")));
  EXPECT_THAT(texts[1], HasSubstr("reached its deadline"));
}

TEST_P(GlooGroup, RefusesWhatItCannotReduce) {
  testing::run_ranks(
      1,
      [](const Group& group) {
        EXPECT_THAT(group->check(at::ones({1}, at::kShort), std::nullopt).message(),
                    HasSubstr("backend \"gloo\" has no type Short"));
        EXPECT_THAT(group->check(at::empty({1}, at::TensorOptions().device(at::kMeta)), std::nullopt).message(),
                    HasSubstr("takes CPU tensors"));
        EXPECT_FALSE(group->check(at::ones({1}), ReduceOp::bit_or).ok());
        EXPECT_THAT(group->describe(), HasSubstr("backend \"gloo\""));
        const ProcessGroup::Memory memory = group->allocate(100);
        EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory.data) % 4096, 0U);
      },
      "gloo");
}

}  // namespace
}  // namespace lockstep::detail

#endif
