#include "lockstep/ddp/clip_grad.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "ddp/testing/test_ranks.h"
#include "lockstep/ddp/collectives.h"

namespace lockstep {
namespace {

using testing::run_ranks;

std::vector<at::Tensor> parameters_with_gradients(double scale) {
  at::Generator generator = at::detail::createCPUGenerator(3);
  std::vector<at::Tensor> result;
  for (std::int64_t size : {1000, 1, 77}) {
    at::Tensor parameter = at::zeros({size}).requires_grad_();
    parameter.mutable_grad() = at::randn({size}, generator) * scale;
    result.push_back(parameter);
  }
  result.push_back(at::zeros({5}).requires_grad_());  // has none
  return result;
}

TEST(ClipGradNorm, EqualsTorchBitForBit) {
  for (double norm_type : {2.0, 1.0, 3.0, static_cast<double>(INFINITY)}) {
    for (double max_norm : {0.5, 1e6}) {
      std::vector<at::Tensor> expected = parameters_with_gradients(2);
      const double norm = torch::nn::utils::clip_grad_norm_(expected, max_norm, norm_type);
      run_ranks(2, [&](const std::shared_ptr<ProcessGroup>& group) {
        std::vector<at::Tensor> got = parameters_with_gradients(2);
        EXPECT_EQ(clip_grad_norm_(got, max_norm, {.norm_type = norm_type, .group = group}), norm);
        for (std::size_t i = 0; i + 1 < got.size(); ++i) EXPECT_TRUE(at::equal(got[i].grad(), expected[i].grad()));
        EXPECT_FALSE(got.back().grad().defined());
      });
    }
  }
}

TEST(ClipGradNorm, AllRanksTakeTheNormOfRankZero) {
  run_ranks(3, [](const std::shared_ptr<ProcessGroup>& group) {
    // The last bits of a norm may differ between ranks; here the first ones do.
    std::vector<at::Tensor> parameters = parameters_with_gradients(1 + group->rank());
    const double own = torch::nn::utils::clip_grad_norm_(parameters, 1e9);
    at::Tensor zeros = at::full({1}, own, at::kDouble);
    broadcast(zeros, 0, {.group = group});
    EXPECT_EQ(clip_grad_norm_(parameters, 1e9, {.group = group}), zeros.item<double>());
  });
}

TEST(ClipGradNorm, WorksWithoutAGroup) {
  std::vector<at::Tensor> parameters = parameters_with_gradients(2);
  EXPECT_GT(clip_grad_norm_(parameters, 1), 1);
  EXPECT_NEAR(clip_grad_norm_(parameters, 1), 1, 1e-4);
  EXPECT_EQ(clip_grad_norm_({}, 1), 0);
}

TEST(ClipGradNorm, ReportsANormThatIsNotFinite) {
  std::vector<at::Tensor> parameters = parameters_with_gradients(1);
  parameters[1].mutable_grad().fill_(NAN);
  const at::Tensor before = parameters[0].grad().clone();
  EXPECT_THROW(clip_grad_norm_(parameters, 1, {.error_if_nonfinite = true}), Error);
  EXPECT_TRUE(at::equal(parameters[0].grad(), before));
  EXPECT_TRUE(std::isnan(clip_grad_norm_(parameters, 1)));
  EXPECT_THROW(clip_grad_norm_(parameters, -1), Error);
  EXPECT_THROW(clip_grad_norm_(parameters, 1, {.norm_type = 0}), Error);
}

}  // namespace
}  // namespace lockstep
