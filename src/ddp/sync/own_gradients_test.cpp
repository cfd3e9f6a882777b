// Gradients in memory that the program owns: autograd adds to it, and the averages must be there, too.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "ddp/testing/test_models.h"
#include "lockstep/ddp/distributed_data_parallel.h"

namespace lockstep {
namespace {

using namespace testing;  // ranks

constexpr std::int64_t kWide = 600;  // a weight of more than 1 MiB, and one of less

at::Tensor make_flat_gradients(const std::vector<at::Tensor>& parameters) {
  std::int64_t count = 0;
  for (const at::Tensor& parameter : parameters) count += parameter.numel();
  at::Tensor flat = torch::zeros({count});
  std::int64_t offset = 0;
  for (const at::Tensor& parameter : parameters) {
    parameter.mutable_grad() = flat.narrow(0, offset, parameter.numel()).view_as(parameter);
    offset += parameter.numel();
  }
  return flat;
}

class OwnGradients : public ::testing::TestWithParam<DdpOptions> {};
INSTANTIATE_TEST_SUITE_P(Options, OwnGradients,
                         ::testing::Values(DdpOptions{}, DdpOptions{.find_unused_parameters = true},
                                           DdpOptions{.static_graph = true}, DdpOptions{.sample_weighted = true}));

TEST_P(OwnGradients, HoldTheAveragesInEveryStep) {
  for (const int ranks : {1, 2}) {
    run_ranks(ranks, [&](const Group& group) {
      DdpOptions options = GetParam();
      options.process_group = group;
      torch::nn::Sequential net(torch::nn::Linear(4, kWide), torch::nn::Linear(kWide, kWide));
      DistributedDataParallel ddp(net, options);
      at::Tensor flat = make_flat_gradients(net->parameters());
      // Unequal batches of equal samples: the weighted average is that of equal batches.
      const std::int64_t samples = options.sample_weighted ? 1 + 3 * group->rank() : 1;
      for (int step = 0; step < 3; ++step) {
        flat.zero_();
        {
          const auto guard = ddp.no_sync();
          ddp(torch::ones({samples, 4})).mean(0).sum().backward();
        }
        ddp(torch::ones({samples, 4})).mean(0).sum().backward();
        EXPECT_GT(flat.abs().sum().item<double>(), 0) << "step " << step;
        std::int64_t offset = 0;
        for (const at::Tensor& parameter : net->parameters()) {
          const at::Tensor part = flat.narrow(0, offset, parameter.numel()).view_as(parameter);
          EXPECT_TRUE(torch::equal(part, parameter.grad())) << "step " << step << ", " << ranks << " ranks";
          offset += parameter.numel();
        }
        EXPECT_TRUE(torch::allclose(net->parameters().back().grad(), torch::full({kWide}, 2.0)));
      }
    });
  }
}

}  // namespace
}  // namespace lockstep
