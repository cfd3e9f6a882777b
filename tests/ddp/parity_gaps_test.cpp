// Cases of pytorch_parity.md in which Lockstep did not do what PyTorch does.
#include <map>

#include "ddp/parity.h"

namespace lockstep::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using torch::nn::Linear;

// Returns both, in a tuple or a map; the loss may use only the second.
template <bool in_map>
struct TwoOutputsImpl : torch::nn::Module {
  TwoOutputsImpl() {
    a = register_module("a", without_bias(10, 10));
    b = register_module("b", without_bias(10, 10));
  }
  auto forward(const at::Tensor& x) {
    if constexpr (in_map) {
      return std::map<std::string, at::Tensor>{{"a", a(x)}, {"b", b(x)}};
    } else {
      return std::tuple(a(x), b(x));
    }
  }
  Linear a{nullptr}, b{nullptr};
};

template <bool in_map>
void expect_unused_outputs_work(bool view) {
  expect_average(
      2, {.find_unused_parameters = true, .gradient_as_bucket_view = view},
      [] { return with_known_parameters(std::make_shared<TwoOutputsImpl<in_map>>()); },
      [](auto& model, int rank, int step) {
        const auto output = model.forward(batch(rank, {10, 10}, step));
        at::Tensor a, b;
        if constexpr (in_map) {
          a = output.at("a"), b = output.at("b");
        } else {
          std::tie(a, b) = output;
        }
        (step == 1 || step == 2 ? a.matmul(b).sum() : b.sum()).backward();
      },
      "", 6);
}

TEST(ParityGaps, AnOutputMayBeUnusedInTheLossWithASearch) {
  for (const bool view : kBoth) {
    expect_unused_outputs_work<false>(view);
    expect_unused_outputs_work<true>(view);
  }
}

// On one rank only: its share of the average is zero.
TEST(ParityGaps, AnOutputMayBeUnusedInTheLossOfOneRank) {
  expect_average(
      2, {.find_unused_parameters = true},
      [] { return with_known_parameters(std::make_shared<TwoOutputsImpl<false>>()); },
      [](auto& model, int rank, int step) {
        auto [a, b] = model.forward(batch(rank, {10, 10}, step));
        (rank == 0 ? a.matmul(b).sum() : b.sum()).backward();
      });
}

TEST(ParityGaps, ParametersOfDifferentLayoutsAreRefused) {
  const auto errors = errors_of_ranks(2, [](const Group& group) {
    torch::nn::Conv2d net(torch::nn::Conv2dOptions(4, 8, 3));
    if (group->rank() == 1) net->weight.set_data(net->weight.detach().contiguous(at::MemoryFormat::ChannelsLast));
    DistributedDataParallel ddp(net, {.process_group = group});
  });
  for (const std::string& error : errors) EXPECT_THAT(error, AllOf(HasSubstr("\"weight\""), HasSubstr("strides")));
}

TEST(ParityGaps, ParametersOfDifferentLayoutsGetRightGradientsOrAnError) {
  const auto pass = [](auto& model, int rank, int step) {
    model.forward(batch(rank, {1, 4, 5, 5}, step)).pow(2).sum().backward();
  };
  const auto make = [] { return with_known_parameters(torch::nn::Conv2d(torch::nn::Conv2dOptions(4, 8, 3))); };
  const Tensors expected = average_of_plain_models(2, make, pass, 0);
  errors_of_ranks(2, [&](const Group& group) {
    auto net = make();
    if (group->rank() == 1) net->weight.set_data(net->weight.detach().contiguous(at::MemoryFormat::ChannelsLast));
    DistributedDataParallel ddp(net, {.process_group = group});
    pass(ddp, group->rank(), 0);
    expect_gradients(gradients(net->parameters()), expected, "rank " + std::to_string(group->rank()));
  });
}

}  // namespace
}  // namespace lockstep::testing
