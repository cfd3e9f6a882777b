#include "lockstep/ddp/functional.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>

#include "ddp/testing/error_of.h"
#include "ddp/testing/test_ranks.h"
#include "lockstep/ddp/distributed_data_parallel.h"
#include "lockstep/ddp/subgroups.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using testing::error_of;
using testing::Group;
using ::testing::HasSubstr;
using testing::run_ranks;

// Every rank's input of a test, the same on all ranks.
at::Tensor input_of(int rank, at::IntArrayRef shape) {
  const auto count = c10::multiply_integers(shape);
  return torch::sin(torch::arange(count, at::kDouble) * 0.7 + rank).view(shape);
}

// What a collective should return on `rank`, computed from all ranks' inputs with operations that autograd knows.
using Reference = std::function<at::Tensor(const std::vector<at::Tensor>& inputs, int rank)>;
using Call = std::function<at::Tensor(const at::Tensor& input, const Group& group)>;

// The loss of a rank: not linear, and different on each.
at::Tensor loss_of(const at::Tensor& output, int rank) { return (output * output * (rank + 1) + output.sin()).sum(); }

// The collective, its gradient and its second derivative equal those of one process that has all inputs.
void expect_equal_to_one_process(int size, at::IntArrayRef shape, const Call& call, const Reference& reference) {
  std::vector<at::Tensor> inputs;
  for (int rank = 0; rank < size; ++rank) inputs.push_back(input_of(rank, shape).requires_grad_(true));
  std::vector<at::Tensor> expected;
  at::Tensor total = torch::zeros({}, at::kDouble);
  for (int rank = 0; rank < size; ++rank) {
    expected.push_back(reference(inputs, rank));
    total = total + loss_of(expected.back(), rank);
  }
  const auto gradients = torch::autograd::grad({total}, inputs, {}, true, true);
  at::Tensor norm = torch::zeros({}, at::kDouble);
  for (const at::Tensor& gradient : gradients) norm = norm + gradient.pow(2).sum();
  const auto second = torch::autograd::grad({norm}, inputs);

  run_ranks(size, [&](const Group& group) {
    const int rank = group->rank();
    const at::Tensor input = input_of(rank, shape).requires_grad_(true);
    const at::Tensor output = call(input, group);
    EXPECT_TRUE(torch::allclose(output, expected[rank].detach())) << output << expected[rank];
    const at::Tensor gradient = torch::autograd::grad({loss_of(output, rank)}, {input}, {}, true, true)[0];
    EXPECT_TRUE(torch::allclose(gradient.detach(), gradients[rank].detach())) << gradient << gradients[rank];
    // The sum of all ranks' norms, as in the reference.
    const at::Tensor twice = torch::autograd::grad({gradient.pow(2).sum()}, {input})[0];
    EXPECT_TRUE(torch::allclose(twice, second[rank])) << twice << second[rank];
  });
}

at::Tensor sum_of(const std::vector<at::Tensor>& tensors) { return at::stack(tensors).sum(0); }

class DifferentiableCollectives : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, DifferentiableCollectives, ::testing::Values(1, 2, 3));

TEST_P(DifferentiableCollectives, AllReduceHasTheDerivativesOfOneProcess) {
  const int n = GetParam();
  expect_equal_to_one_process(
      n, {2, 3}, [](const at::Tensor& x, const Group& g) { return functional::all_reduce(x, {.group = g}); },
      [](const auto& inputs, int) { return sum_of(inputs); });
  expect_equal_to_one_process(
      n, {4},
      [](const at::Tensor& x, const Group& g) { return functional::all_reduce(x, {.op = ReduceOp::avg, .group = g}); },
      [n](const auto& inputs, int) { return sum_of(inputs) / n; });
}

TEST_P(DifferentiableCollectives, ReduceAndBroadcastHaveTheDerivativesOfOneProcess) {
  const int n = GetParam(), root = n - 1;
  for (const ReduceOp op : {ReduceOp::sum, ReduceOp::avg}) {
    const double scale = op == ReduceOp::avg ? 1.0 / n : 1.0;
    expect_equal_to_one_process(
        n, {3, 2},
        [&](const at::Tensor& x, const Group& g) { return functional::reduce(x, root, {.op = op, .group = g}); },
        [&](const auto& inputs, int rank) { return sum_of(inputs) * (rank == root ? scale : 0.0); });
  }
  expect_equal_to_one_process(
      n, {5}, [&](const at::Tensor& x, const Group& g) { return functional::broadcast(x, root, {.group = g}); },
      [&](const auto& inputs, int) { return inputs[root] + 0 * sum_of(inputs); });
}

TEST_P(DifferentiableCollectives, AllGatherHasTheDerivativesOfOneProcess) {
  expect_equal_to_one_process(
      GetParam(), {2, 3},
      [](const at::Tensor& x, const Group& g) { return functional::all_gather_into_tensor(x, {.group = g}); },
      [](const auto& inputs, int) { return at::cat(inputs); });
  expect_equal_to_one_process(
      GetParam(), {3, 2},  // a list, of a view that is not contiguous
      [](const at::Tensor& x, const Group& g) { return at::stack(functional::all_gather(x.t(), {.group = g})); },
      [](const auto& inputs, int) { return at::stack(inputs).transpose(1, 2); });
  expect_equal_to_one_process(
      GetParam(), {},
      [](const at::Tensor& x, const Group& g) { return functional::all_gather_into_tensor(x, {.group = g}); },
      [](const auto& inputs, int) { return at::stack(inputs); });
}

TEST_P(DifferentiableCollectives, ReduceScatterHasTheDerivativesOfOneProcess) {
  const int n = GetParam();
  for (const ReduceOp op : {ReduceOp::sum, ReduceOp::avg}) {
    const double scale = op == ReduceOp::avg ? 1.0 / n : 1.0;
    expect_equal_to_one_process(
        n, {2 * n, 3},
        [&](const at::Tensor& x, const Group& g) {
          return functional::reduce_scatter_tensor(x, {.op = op, .group = g});
        },
        [&](const auto& inputs, int rank) { return sum_of(inputs).narrow(0, 2 * rank, 2) * scale; });
  }
  expect_equal_to_one_process(
      n, {n, 4},
      [](const at::Tensor& x, const Group& g) { return functional::reduce_scatter(x.unbind(0), {.group = g}); },
      [](const auto& inputs, int rank) { return sum_of(inputs)[rank]; });
}

TEST_P(DifferentiableCollectives, GatherAndScatterHaveTheDerivativesOfOneProcess) {
  const int n = GetParam(), root = n - 1;
  expect_equal_to_one_process(
      n, {2, 2},
      [&](const at::Tensor& x, const Group& g) { return at::stack(functional::gather(x, root, {.group = g})); },
      [&](const auto& inputs, int rank) { return at::stack(inputs) * (rank == root ? 1 : 0); });
  expect_equal_to_one_process(
      n, {n, 3},
      [&](const at::Tensor& x, const Group& g) { return functional::scatter(x.unbind(0), root, {.group = g}); },
      [&](const auto& inputs, int rank) { return inputs[root][rank] + 0 * sum_of(inputs)[rank]; });
}

TEST_P(DifferentiableCollectives, AllToAllHasTheDerivativesOfOneProcess) {
  const int n = GetParam();
  const Reference exchange = [](const auto& inputs, int rank) {
    std::vector<at::Tensor> parts;
    for (const at::Tensor& input : inputs) parts.push_back(input.narrow(0, 2 * rank, 2));
    return at::cat(parts);
  };
  expect_equal_to_one_process(
      n, {2 * n, 3}, [](const at::Tensor& x, const Group& g) { return functional::all_to_all_single(x, {.group = g}); },
      exchange);
  expect_equal_to_one_process(
      n, {2 * n},
      [](const at::Tensor& x, const Group& g) {
        return at::cat(functional::all_to_all(x.chunk(g->size()), {.group = g}));
      },
      exchange);
}

// Rank r sends r + s rows to rank s, so one part is empty.
TEST_P(DifferentiableCollectives, AllToAllWithSplitsHasTheDerivativesOfOneProcess) {
  const int n = GetParam();
  const auto first_row = [n](int rank, int part) {
    int first = 0;
    for (int s = 0; s < part; ++s) first += rank + s;
    return first;
  };
  const int rows = 3 * n * n;  // enough for every rank; the rest is not sent
  expect_equal_to_one_process(
      n, {rows, 2},
      [&](const at::Tensor& x, const Group& g) {
        AllToAllSplits splits;
        for (int s = 0; s < n; ++s) splits.input.push_back(g->rank() + s);
        splits.output = splits.input;
        return functional::all_to_all_single(x.narrow(0, 0, first_row(g->rank(), n)), splits, {.group = g});
      },
      [&](const auto& inputs, int rank) {
        std::vector<at::Tensor> parts;
        for (int from = 0; from < n; ++from) {
          parts.push_back(inputs[from].narrow(0, first_row(from, rank), from + rank));
        }
        return at::cat(parts) + 0 * sum_of(inputs).sum();
      });
}

TEST(DifferentiableCollective, IsRecordedEvenIfOnlyOtherRanksNeedAGradient) {
  run_ranks(2, [](const Group& group) {
    const at::Tensor input = torch::full({3}, group->rank() + 1.0).requires_grad_(group->rank() == 0);
    const at::Tensor sum = functional::all_reduce(input, {.group = group});
    ASSERT_TRUE(sum.requires_grad());
    (sum * (group->rank() + 1)).sum().backward();
    ASSERT_EQ(input.grad().defined(), group->rank() == 0);
    if (group->rank() == 0) {
      EXPECT_TRUE(torch::equal(input.grad(), torch::full({3}, 3.0)));
    }
  });
}

TEST(DifferentiableCollective, WithoutGradientsRecordsNothing) {
  run_ranks(2, [](const Group& group) {
    const torch::NoGradGuard guard;
    const at::Tensor input = torch::ones({2}).requires_grad_(true);
    EXPECT_FALSE(functional::all_reduce(input, {.group = group}).requires_grad());
    EXPECT_TRUE(torch::equal(functional::all_reduce(torch::ones({2}, at::kLong), {.group = group}),
                             torch::full({2}, 2, at::kLong)));
  });
}

TEST(DifferentiableCollective, RefusesWhatHasNoDerivative) {
  run_ranks(2, [](const Group& group) {
    const at::Tensor input = torch::ones({3});
    EXPECT_THAT(error_of([&] { functional::all_reduce(input, {.op = ReduceOp::max, .group = group}); }),
                AllOf(HasSubstr("max has no derivative"), HasSubstr("sum or avg")));
    EXPECT_THAT(error_of([&] { functional::reduce_scatter_tensor(input, {.group = group}); }),
                HasSubstr("3 rows (dimension 0) cannot be split evenly between 2 ranks"));
    EXPECT_THAT(error_of([&] { functional::broadcast(input, 7, {.group = group}); }),
                HasSubstr("7 is not in the group"));
    EXPECT_THAT(error_of([&] { functional::all_to_all({input}, {.group = group}); }), HasSubstr("1 inputs"));
    EXPECT_TRUE(group->health().ok());
  });
}

TEST(DifferentiableCollective, SplitsThatDisagreeAreAnErrorOnAllRanksAndTheGroupStaysUsable) {
  run_ranks(2, [](const Group& group) {
    at::Tensor output = torch::empty({3});
    AllToAllSplits splits{.output = {1, 2}, .input = {1, 2}};
    if (group->rank() == 1) splits = {.output = {3, 0}, .input = {2, 1}};
    EXPECT_THAT(error_of([&] { all_to_all_single(output, torch::ones({3}), splits, {.group = group}); }),
                HasSubstr("global rank 0 sends 2 rows to global rank 1, which expects 3"));
    barrier({.group = group});
  });
}

// Contrastive learning: each rank compares its features with those of all ranks. With DDP, the gradient is that of one
// process with the whole batch.
TEST(DifferentiableCollective, AContrastiveLossUnderDdpHasTheGradientOfTheWholeBatch) {
  const auto make_model = [] {
    torch::nn::Sequential model(torch::nn::Linear(6, 16), torch::nn::Tanh(), torch::nn::Linear(16, 4));
    model->to(at::kDouble);
    const torch::NoGradGuard guard;
    std::int64_t first = 0;
    for (at::Tensor& parameter : model->parameters()) {  // ranks are threads, which share one random generator
      parameter.copy_(torch::sin(torch::arange(first, first + parameter.numel(), at::kDouble)).view(parameter.sizes()) /
                      2);
      first += parameter.numel();
    }
    return model;
  };
  const auto normalised = [](const at::Tensor& x) { return x / x.norm(2, 1, true); };
  const int ranks = 3, rows = 4;
  torch::manual_seed(4);
  const at::Tensor images = torch::randn({ranks * rows, 6}, at::kDouble);
  const at::Tensor texts = torch::randn({ranks * rows, 6}, at::kDouble);

  auto alone = make_model();
  const auto logits = at::matmul(normalised(alone->forward(images)), normalised(alone->forward(texts)).t()) * 5;
  torch::nn::functional::cross_entropy(logits, torch::arange(ranks * rows)).backward();

  run_ranks(ranks, [&](const Group& group) {
    auto model = make_model();
    DistributedDataParallel ddp(model, {.process_group = group});
    const std::int64_t first = group->rank() * rows;
    const at::Tensor both = ddp(at::cat({images.narrow(0, first, rows), texts.narrow(0, first, rows)}));
    const at::Tensor mine = normalised(both.narrow(0, 0, rows));
    const at::Tensor all = functional::all_gather_into_tensor(normalised(both.narrow(0, rows, rows)), {.group = group});
    const at::Tensor labels = torch::arange(first, first + rows);
    torch::nn::functional::cross_entropy(at::matmul(mine, all.t()) * 5, labels).backward();
    const auto expected = alone->parameters(), actual = model->parameters();
    for (std::size_t i = 0; i < expected.size(); ++i) {
      EXPECT_TRUE(torch::allclose(actual[i].grad(), expected[i].grad(), 1e-9, 1e-12)) << i;
    }
  });
}

TEST(Functional, RanksWhoseLossesUseDifferentCallsGetAnError) {
  if (testing::test_backend() != "lockstep")
    GTEST_SKIP() << "only Lockstep's engine notices that ranks call different operations";
  const auto errors = testing::errors_of_ranks(2, [](const Group& group) {
    const at::Tensor x = torch::ones({3}).requires_grad_();
    const at::Tensor a = functional::all_reduce(x, {.group = group});
    const at::Tensor b = functional::all_reduce(2 * x, {.group = group});
    (group->rank() == 0 ? a : b).sum().backward();
  });
  for (const std::string& error : errors) EXPECT_THAT(error, HasSubstr("different operations"));
}

}  // namespace
}  // namespace lockstep
