#include "lockstep/ddp/collectives.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "ddp/testing/error_of.h"
#include "ddp/testing/test_ranks.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using testing::error_of;
using testing::Group;
using ::testing::HasSubstr;
using testing::run_ranks;

bool all_equal(const at::Tensor& tensor, double value) { return (tensor == value).all().item<bool>(); }

class TensorCollectives : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, TensorCollectives, ::testing::Values(1, 2, 3));

TEST_P(TensorCollectives, AllReduceOfEveryType) {
  run_ranks(GetParam(), [](const Group& group) {
    const int n = group->size();
    for (const auto type :
         {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kChar, at::kByte, at::kInt, at::kLong}) {
      at::Tensor tensor = at::full({3, 2}, group->rank() + 1, type);
      all_reduce(tensor, {.group = group});
      EXPECT_TRUE(all_equal(tensor, n * (n + 1) / 2)) << tensor;
    }
    at::Tensor complex = torch::complex(torch::full({2}, 1.0), torch::full({2}, 1.0 + group->rank()));
    all_reduce(complex, {.op = ReduceOp::avg, .group = group});
    EXPECT_TRUE(torch::allclose(at::imag(complex), torch::full({2}, (n + 1) / 2.0)));
    at::Tensor flags = torch::tensor({true, group->rank() == 0, false});
    all_reduce(flags, {.group = group});
    EXPECT_TRUE(torch::equal(flags, torch::tensor({true, true, false}))) << flags;
  });
}

TEST_P(TensorCollectives, TakeTensorsOfAnyShapeAndStrides) {
  run_ranks(GetParam(), [](const Group& group) {
    const int n = group->size();
    at::Tensor base = torch::zeros({4, 6});
    at::Tensor columns = base.t().narrow(0, 1, 2);  // strided, not contiguous
    columns.fill_(group->rank() + 1);
    all_reduce(columns, {.group = group});
    EXPECT_TRUE(all_equal(columns, n * (n + 1) / 2));
    EXPECT_TRUE(all_equal(base.select(1, 0), 0)) << "the neighbours must not change";
    at::Tensor scalar = torch::tensor(1.0);
    all_reduce(scalar, {.group = group});
    EXPECT_EQ(scalar.item<double>(), n);
    at::Tensor empty = torch::empty({0, 3});
    all_reduce(empty, {.group = group});
    at::Tensor leaf = torch::ones({2}).requires_grad_(true);
    all_reduce(leaf, {.group = group});
    EXPECT_TRUE(all_equal(leaf, n));
    EXPECT_TRUE(leaf.is_leaf());
  });
}

TEST_P(TensorCollectives, MoveTensorsBetweenRanks) {
  run_ranks(GetParam(), [](const Group& group) {
    const int n = group->size(), rank = group->rank();
    const TensorCallOptions on{.group = group};
    at::Tensor tensor = torch::full({2, 2}, double(rank)).t();
    broadcast(tensor, n - 1, on);
    EXPECT_TRUE(all_equal(tensor, n - 1));

    std::vector<at::Tensor> gathered;
    for (int r = 0; r < n; ++r) gathered.push_back(torch::zeros({r + 1, 2}));  // unequal shapes
    all_gather(gathered, torch::full({rank + 1, 2}, double(rank)), on);
    for (int r = 0; r < n; ++r) EXPECT_TRUE(all_equal(gathered[std::size_t(r)], r));

    at::Tensor flat = torch::zeros({n, 3});
    all_gather_into_tensor(flat, torch::full({3}, double(rank)), on);
    for (int r = 0; r < n; ++r) EXPECT_TRUE(all_equal(flat[r], r));

    std::vector<at::Tensor> parts;
    for (int r = 0; r < n; ++r) parts.push_back(torch::full({2}, double(r)));
    at::Tensor mine = torch::zeros({2});
    reduce_scatter(mine, parts, {.group = group});
    EXPECT_TRUE(all_equal(mine, rank * n));
    at::Tensor mine_too = torch::zeros({2});
    reduce_scatter_tensor(mine_too, torch::cat(parts), {.group = group});
    EXPECT_TRUE(torch::equal(mine, mine_too));

    std::vector<at::Tensor> at_root;
    for (int r = 0; rank == 0 && r < n; ++r) at_root.push_back(torch::zeros({2}));
    gather(torch::full({2}, double(rank)), at_root, 0, on);
    for (int r = 0; rank == 0 && r < n; ++r) EXPECT_TRUE(all_equal(at_root[std::size_t(r)], r));
    scatter(mine, rank == 0 ? parts : std::vector<at::Tensor>{}, 0, on);
    EXPECT_TRUE(all_equal(mine, rank));

    std::vector<at::Tensor> sent, received;
    for (int r = 0; r < n; ++r) {
      sent.push_back(torch::full({2}, 10.0 * rank + r));
      received.push_back(torch::zeros({2}));
    }
    all_to_all(received, sent, on);
    for (int r = 0; r < n; ++r) EXPECT_TRUE(all_equal(received[std::size_t(r)], 10.0 * r + rank));
    at::Tensor single = torch::zeros({n, 2});
    all_to_all_single(single, torch::stack(sent), on);
    for (int r = 0; r < n; ++r) EXPECT_TRUE(all_equal(single[r], 10.0 * r + rank));

    at::Tensor total = torch::full({2}, double(rank + 1));
    reduce(total, n - 1, {.op = ReduceOp::max, .group = group});
    EXPECT_TRUE(all_equal(total, rank == n - 1 ? n : rank + 1));
    barrier(on);
    monitored_barrier(std::chrono::seconds(20), group);
  });
}

TEST(TensorPointToPoint, MatchesTagsAndFillsStridedTensors) {
  run_ranks(2, [](const Group& group) {
    const TensorCallOptions on{.group = group};
    if (group->rank() == 0) {
      send(torch::full({2, 3}, 1.0), 1, 1, on);
      send(torch::full({2, 3}, 2.0), 1, 2, on);
    } else {
      at::Tensor second = torch::zeros({3, 2}).t(), first = torch::zeros({2, 3});
      Work work = recv_async(second, 0, 2, on);
      recv(first, 0, 1, on);
      work.wait();
      EXPECT_TRUE(all_equal(first, 1));
      EXPECT_TRUE(all_equal(second, 2));
    }
  });
}

TEST(TensorAsync, TensorsMayBeDroppedBeforeTheEnd) {
  run_ranks(2, [](const Group& group) {
    std::vector<Work> works;
    for (int i = 0; i < 20; ++i) works.push_back(all_reduce_async(torch::ones({1000}).t(), {.group = group}));
    for (const Work& work : works) work.wait();
  });
}

TEST(TensorErrors, SuggestWhatToDo) {
  run_ranks(1, [](const Group& group) {
    const TensorReduceOptions on{.group = group};
    EXPECT_THAT(error_of([&] { all_reduce(at::Tensor(), on); }), HasSubstr("undefined"));
    EXPECT_THAT(error_of([&] { all_reduce(torch::ones({2}, at::kShort), on); }),
                AllOf(HasSubstr("Short"), HasSubstr("convert")));
    EXPECT_THAT(error_of([&] { all_reduce(torch::eye(2).to_sparse(), on); }), HasSubstr("to_dense"));
    EXPECT_THAT(error_of([&] { all_reduce(torch::ones({2}), {.op = ReduceOp::bit_or, .group = group}); }),
                HasSubstr("for integers"));
    EXPECT_THAT(error_of([&] { all_reduce(torch::ones({2}, at::kBool), {.op = ReduceOp::avg, .group = group}); }),
                HasSubstr("bool"));
    EXPECT_THAT(error_of([&] { broadcast(torch::ones({2}), 7, {.group = group}); }),
                HasSubstr("global rank 7 is not in the group, which has the global ranks 0;"));
    EXPECT_THAT(error_of([&] { all_gather({}, torch::ones({2}), {.group = group}); }), HasSubstr("holds 0 tensors"));
    EXPECT_THAT(error_of([&] { all_gather_into_tensor(torch::ones({3}), torch::ones({2}), {.group = group}); }),
                HasSubstr("output has 3 elements"));
    EXPECT_THAT(error_of([&] { all_reduce(torch::ones({2}, at::kMeta), on); }), HasSubstr("meta"));
    EXPECT_THAT(error_of([&] { all_reduce(torch::ones({2})); }), HasSubstr("init_process_group()"));
  });
}

TEST(DefaultGroup, IsCreatedOnceAndDestroyed) {
  EXPECT_FALSE(is_initialized());
  {
    const std::string path = ::testing::TempDir() + "lockstep_default_group_" + std::to_string(::getpid());
    ProcessGroupScope job({.init_method = "file://" + path, .rank = 0, .world_size = 1});
    EXPECT_TRUE(is_initialized());
    EXPECT_EQ(get_rank(), 0);
    EXPECT_EQ(get_world_size(), 1);
    EXPECT_EQ(get_backend(), "lockstep");
    EXPECT_THAT(error_of([] { init_process_group(); }), HasSubstr("already"));
    EXPECT_EQ(new_group({0})->size(), 1);
    EXPECT_EQ(new_group({})->rank(), -1);
    at::Tensor tensor = torch::ones({2});
    all_reduce(tensor);
  }
  EXPECT_FALSE(is_initialized());
  destroy_process_group();
  EXPECT_THAT(error_of([] { init_process_group({.backend = "carrier-pigeon"}); }),
              AllOf(HasSubstr("carrier-pigeon"), HasSubstr("lockstep")));
}

}  // namespace
}  // namespace lockstep
