// What each hook promises for a single bucket: its error, its bits, its traffic.
#include "lockstep/ddp/hooks.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <limits>

#include "ddp/hooks/low_rank.h"
#include "ddp/hooks/quantise.h"
#include "ddp/testing/hooks.h"

namespace lockstep {
namespace {

using testing::Group;
using testing::HookFactory;
using testing::on_ranks;
using testing::OneGradient;
using testing::reduce_on_ranks;
using testing::same_bits;
using Tensors = std::vector<at::Tensor>;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

Tensors random_gradients(int ranks, std::int64_t count, double magnitude) {
  torch::manual_seed(count + ranks);
  Tensors gradients;
  for (int r = 0; r < ranks; ++r) {
    at::Tensor gradient = at::randn({count}) * magnitude;
    gradient.index_put_({at::arange(0, count, 5)}, 0.0F);
    gradients.push_back(gradient);
  }
  return gradients;
}

at::Tensor exact_mean(const Tensors& gradients) { return at::stack(gradients).to(at::kDouble).mean(0); }
at::Tensor mean_of_absolutes(const Tensors& gradients) { return at::stack(gradients).to(at::kDouble).abs().mean(0); }

using Bound = std::function<at::Tensor(const Tensors&)>;

Bound half_bound(double unit, double smallest) {
  return [=](const Tensors& gradients) {
    return mean_of_absolutes(gradients) * (2.1 * unit) + (static_cast<double>(gradients.size()) + 1) * smallest;
  };
}

// The block's largest value of each rank, averaged, for every element. Chunks are whole blocks.
at::Tensor int8_bound(const Tensors& gradients) {
  const std::int64_t count = gradients[0].numel();
  at::Tensor bound = at::zeros({count}, at::kDouble);
  for (std::int64_t begin = 0; begin < count; begin += 256) {
    const std::int64_t length = std::min<std::int64_t>(256, count - begin);
    double largest = 0;
    for (const at::Tensor& gradient : gradients) {
      largest += gradient.narrow(0, begin, length).abs().max().item<double>();
    }
    largest /= static_cast<double>(gradients.size());
    bound.narrow(0, begin, length).fill_(largest / 127 * (1 + std::ldexp(1, -12)) + 3e-36);
  }
  return bound;
}

struct Case {
  const char* name;
  HookFactory make;
  Bound bound;
};

std::vector<Case> averaging_hooks() {
  return {
      {"all_reduce", [] { return all_reduce_hook(); }, half_bound(std::ldexp(1, -23), std::ldexp(1, -149))},
      {"fp16", [] { return fp16_compress_hook(); }, half_bound(std::ldexp(1, -11), std::ldexp(1, -25))},
      {"bf16", [] { return bf16_compress_hook(); }, half_bound(std::ldexp(1, -8), std::ldexp(1, -133))},
      {"int8", [] { return int8_compress_hook(); }, int8_bound},
  };
}

void expect_bound_and_equal_bits(const Case& hook, const Tensors& gradients, const std::string& where) {
  const Tensors results = reduce_on_ranks(hook.make, gradients);
  const at::Tensor excess = (results[0].to(at::kDouble) - exact_mean(gradients)).abs() - hook.bound(gradients);
  EXPECT_LE(excess.max().item<double>(), 0) << where;
  for (const at::Tensor& result : results) EXPECT_TRUE(same_bits(result, results[0])) << where;
}

TEST(Hooks, TheErrorIsWithinTheBoundAndAllRanksHaveTheSameBits) {
  for (const Case& hook : averaging_hooks()) {
    for (int ranks : {2, 3}) {
      for (std::int64_t count : {1, 7, 256, 1000, 4099}) {
        for (double magnitude : {0.0, 1e-40, 1e-20, 1e-6, 1.0, 1e3}) {
          expect_bound_and_equal_bits(hook, random_gradients(ranks, count, magnitude),
                                      std::string(hook.name) + " ranks " + std::to_string(ranks) + " count " +
                                          std::to_string(count) + " magnitude " + std::to_string(magnitude));
        }
      }
    }
  }
}

TEST(Hooks, RanksOfVeryDifferentMagnitudeKeepTheBound) {
  for (const Case& hook : averaging_hooks()) {
    Tensors gradients = random_gradients(3, 700, 1.0);
    gradients[1].mul_(1e-5);
    gradients[2].mul_(1e4);
    expect_bound_and_equal_bits(hook, gradients, hook.name);
  }
}

TEST(Hooks, Fp16OverflowsOnlyIfTheAverageDoes) {
  const Tensors fits = reduce_on_ranks([] { return fp16_compress_hook(); },
                                       {at::full({4}, 100000.0F), at::full({4}, 20000.0F), at::full({4}, 60000.0F)});
  EXPECT_NEAR(fits[0][0].item<float>(), 60000, 60000 * 2.1 / 2048);
  const Tensors too_large =
      reduce_on_ranks([] { return fp16_compress_hook(); }, {at::full({4}, 100000.0F), at::full({4}, 90000.0F)});
  EXPECT_TRUE(too_large[0].isinf().all().item<bool>());
}

TEST(Hooks, NonFiniteGradientsOfOneRankReachAll) {
  for (float value : {kInf, -kInf, kNaN}) {
    for (const Case& hook : averaging_hooks()) {
      Tensors gradients = random_gradients(2, 1024, 1.0);
      gradients[1][300] = value;
      const Tensors results = reduce_on_ranks(hook.make, gradients);
      for (const at::Tensor& result : results) {
        EXPECT_FALSE(std::isfinite(result[300].item<float>())) << hook.name;
        // The 8-bit hook loses the block [256, 512), the others only the element.
        EXPECT_TRUE(result.narrow(0, 0, 256).isfinite().all().item<bool>()) << hook.name;
        EXPECT_TRUE(result.narrow(0, 512, 512).isfinite().all().item<bool>()) << hook.name;
        if (std::string(hook.name) == "int8") {
          EXPECT_TRUE(result.narrow(0, 256, 256).isnan().all().item<bool>());
        } else {
          EXPECT_EQ(result.isfinite().sum().item<std::int64_t>(), 1023) << hook.name;
        }
      }
    }
  }
}

TEST(Hooks, OtherTypesAreAveragedToo) {
  std::vector<HookFactory> factories;
  for (const Case& hook : averaging_hooks()) factories.push_back(hook.make);
  factories.push_back([] { return power_sgd_hook({.start_iteration = 0}); });
  for (const HookFactory& make : factories) {
    for (at::ScalarType dtype : {at::kDouble, at::kBFloat16, at::kHalf}) {
      Tensors gradients = random_gradients(2, 600, 1.0);
      for (at::Tensor& gradient : gradients) gradient = gradient.to(dtype).view({20, 30});
      const Tensors results = reduce_on_ranks(make, gradients);
      EXPECT_EQ(results[0].scalar_type(), dtype);
      EXPECT_TRUE(at::allclose(results[0].to(at::kDouble), exact_mean(gradients), 0.02, 0.02)) << make()->name();
      EXPECT_TRUE(same_bits(results[0], results[1]));
    }
  }
}

TEST(Hooks, AGroupOfOneRankKeepsItsGradients) {
  const Tensors gradients = random_gradients(1, 600, 1.0);
  for (const HookFactory& make : std::vector<HookFactory>{
           [] { return all_reduce_hook(); }, [] { return fp16_compress_hook(); }, [] { return int8_compress_hook(); },
           [] { return power_sgd_hook({.start_iteration = 0}); }, [] { return noop_hook(); }}) {
    EXPECT_TRUE(same_bits(reduce_on_ranks(make, {gradients[0].view({20, 30})})[0], gradients[0]));
  }
}

TEST(Hooks, NoopKeepsEveryRanksOwnGradients) {
  const Tensors gradients = random_gradients(2, 10, 1.0);
  const Tensors results = reduce_on_ranks([] { return noop_hook(); }, gradients);
  EXPECT_TRUE(same_bits(results[0], gradients[0]));
  EXPECT_TRUE(same_bits(results[1], gradients[1]));
}

TEST(Hooks, InvalidOptionsAreRefused) {
  EXPECT_THROW(int8_compress_hook({.block_size = 10}), Error);
  EXPECT_THROW(int8_compress_hook({.block_size = 0}), Error);
  EXPECT_THROW(power_sgd_hook({.matrix_approximation_rank = 0}), Error);
  EXPECT_THROW(power_sgd_hook({.min_compression_rate = 0}), Error);
  EXPECT_THROW(post_local_sgd_hook({.start_step = -1}), Error);
}

// Bytes that one rank sends for a gradient of these sizes.
double traffic(const HookFactory& make, at::IntArrayRef sizes, int ranks) {
  double bytes = 0;
  on_ranks(ranks, [&](int rank, const Group& group) {
    const auto counting = std::make_shared<testing::CountingGroup>(group);
    OneGradient(sizes).reduce(*make(), at::ones(sizes), *counting);
    if (rank == 0) bytes = counting->bytes_sent();
  });
  return testing::shared(bytes, 0);
}

TEST(Hooks, TrafficIsAsDocumented) {
  for (int ranks : {2, 3}) {
    const std::vector<std::int64_t> sizes = {512, 384};
    const double plain = traffic([] { return all_reduce_hook(); }, sizes, ranks);
    EXPECT_EQ(plain, 2.0 * 512 * 384 * 4 * (ranks - 1) / ranks);
    EXPECT_EQ(traffic([] { return fp16_compress_hook(); }, sizes, ranks), plain / 2);
    EXPECT_EQ(traffic([] { return bf16_compress_hook(); }, sizes, ranks), plain / 2);
    EXPECT_NEAR(traffic([] { return int8_compress_hook(); }, sizes, ranks), plain / 4, plain / 4 * 0.03);
    EXPECT_EQ(traffic([] { return noop_hook(); }, sizes, ranks), 0);
    const auto power_sgd = [] { return power_sgd_hook({.matrix_approximation_rank = 2, .start_iteration = 0}); };
    EXPECT_DOUBLE_EQ(traffic(power_sgd, sizes, ranks), plain * 2 * (512 + 384) / (512 * 384));
    EXPECT_EQ(traffic(power_sgd, {512}, ranks), plain / 384) << "1-D gradients go as they are";
  }
}

TEST(Quantise, RoundsToTheNearestOf255Levels) {
  const std::vector<float> values = {1.0F, -1.0F, 0.5F, 0.0F, 1.0F / 254 * 0.99F, 1.0F / 254 * 1.01F};
  const auto layout = detail::QuantisedLayout::for_values(values.size(), 16);
  std::vector<std::byte> message(layout.bytes());
  detail::quantise(values, layout, message.data());
  std::vector<float> decoded(values.size(), 10.0F);
  detail::add_dequantised(message.data(), layout, 2, decoded);
  EXPECT_FLOAT_EQ(decoded[0], 12);
  EXPECT_FLOAT_EQ(decoded[1], 8);
  EXPECT_NEAR(decoded[2], 11, 2.0 / 254 * 1.001);
  EXPECT_EQ(decoded[3], 10);
  EXPECT_EQ(decoded[4], 10);
  EXPECT_NEAR(decoded[5], 10 + 2.0 / 127, 1e-5);
}

TEST(Quantise, TheLargestFiniteValuesSurvive) {
  const std::vector<float> values(16, std::numeric_limits<float>::max());
  const auto layout = detail::QuantisedLayout::for_values(values.size(), 16);
  std::vector<std::byte> message(layout.bytes());
  detail::quantise(values, layout, message.data());
  std::vector<float> decoded(values.size(), 0.0F);
  detail::add_dequantised(message.data(), layout, 0.5F, decoded);
  EXPECT_NEAR(decoded[7] / (values[7] / 2), 1, 1e-5);
}

TEST(LowRank, ColumnsBecomeOrthonormalAndDependentOnesZero) {
  std::vector<float> values = {1, 2, 1e-20F, 2, 4, 0, 3, 6, 1e-20F};  // the second column is twice the first
  detail::orthonormalise({values.data(), 3, 3});
  const at::Tensor matrix = at::from_blob(values.data(), {3, 3});
  const at::Tensor products = at::mm(matrix.t(), matrix);
  EXPECT_TRUE(at::allclose(products, at::diag(torch::tensor({1.0F, 0.0F, 1.0F})), 1e-5, 1e-6)) << products;

  std::mt19937_64 random(1);
  std::vector<float> empty(12, 0.0F);
  detail::orthonormalise({empty.data(), 4, 3}, &random);
  const at::Tensor refilled = at::from_blob(empty.data(), {4, 3});
  EXPECT_TRUE(at::allclose(at::mm(refilled.t(), refilled), at::eye(3), 1e-5, 1e-5));
}

PowerSgdOptions at_once(std::int64_t rank) { return {.matrix_approximation_rank = rank, .start_iteration = 0}; }

TEST(PowerSgd, AGradientOfLowRankIsExact) {
  torch::manual_seed(3);
  const at::Tensor u = at::randn({40, 2});
  const at::Tensor v = at::randn({2, 30});
  Tensors gradients;
  for (int r = 0; r < 3; ++r) gradients.push_back(at::mm(u * (r + 1.0), v));
  for (double magnitude : {1e-20, 1.0, 1e10}) {
    Tensors scaled;
    for (const at::Tensor& gradient : gradients) scaled.push_back(gradient * magnitude);
    const Tensors results = reduce_on_ranks([] { return power_sgd_hook(at_once(2)); }, scaled);
    const at::Tensor expected = exact_mean(scaled);
    EXPECT_LE((results[0] - expected).abs().max().item<double>(), 1e-4 * expected.abs().max().item<double>());
    for (const at::Tensor& result : results) EXPECT_TRUE(same_bits(result, results[0]));
  }
}

// Runs steps on 2 ranks; `gradient_of(rank, step)` in, rank 0's results out; checks that ranks have equal bits.
Tensors run_steps(const PowerSgdOptions& options, int steps, const std::function<at::Tensor(int, int)>& gradient_of) {
  std::vector<Tensors> results(2);
  const at::Tensor like = gradient_of(0, 0);
  on_ranks(2, [&](int rank, const Group& group) {
    const auto hook = power_sgd_hook(options);
    const OneGradient bucket(like.sizes());
    for (int step = 0; step < steps; ++step) {
      results[static_cast<std::size_t>(rank)].push_back(bucket.reduce(*hook, gradient_of(rank, step), *group));
    }
  });
  for (int rank : {0, 1}) {
    Tensors& of_rank = results[static_cast<std::size_t>(rank)];
    of_rank = testing::shared(of_rank, rank);
  }
  for (std::size_t i = 0; i < results[0].size(); ++i) EXPECT_TRUE(same_bits(results[0][i], results[1][i])) << i;
  return results[0];
}

TEST(PowerSgd, WithErrorFeedbackNothingIsLostOnlyDelayed) {
  torch::manual_seed(4);
  const Tensors given = {at::randn({12, 10}), at::randn({12, 10})};
  const auto gradient_of = [&](int rank, int step) {
    return step < 3 ? given[static_cast<std::size_t>(rank)] : at::zeros({12, 10});
  };
  const at::Tensor expected = 3 * (given[0] + given[1]) / 2;
  const auto sum_of_results = [&](bool feedback) {
    const Tensors results = run_steps({.start_iteration = 0, .use_error_feedback = feedback}, 150, gradient_of);
    return at::stack(results).sum(0);
  };
  const double norm = expected.norm().item<double>();
  EXPECT_LE((sum_of_results(true) - expected).norm().item<double>(), 1e-3 * norm);
  EXPECT_GE((sum_of_results(false) - expected).norm().item<double>(), 0.3 * norm);
}

TEST(PowerSgd, CompressionBeginsAtStartIteration) {
  torch::manual_seed(5);
  const Tensors given = {at::randn({12, 10}), at::randn({12, 10})};
  const Tensors results =
      run_steps({.start_iteration = 2}, 3, [&](int rank, int) { return given[static_cast<std::size_t>(rank)]; });
  const at::Tensor mean = (given[0] + given[1]) / 2;
  EXPECT_TRUE(at::allclose(results[0], mean, 1e-6, 1e-6));
  EXPECT_TRUE(at::allclose(results[1], mean, 1e-6, 1e-6));
  EXPECT_FALSE(at::allclose(results[2], mean, 1e-1, 1e-1));
}

TEST(PowerSgd, GradientsNotWorthCompressingAreExact) {
  torch::manual_seed(6);
  const Tensors given = {at::randn({5, 4}), at::randn({5, 4})};  // 20 values; factors of rank 1 have 9
  const auto gradient_of = [&](int rank, int) { return given[static_cast<std::size_t>(rank)]; };
  const at::Tensor mean = (given[0] + given[1]) / 2;
  EXPECT_TRUE(at::allclose(run_steps({.start_iteration = 0, .min_compression_rate = 3}, 1, gradient_of)[0], mean));
  EXPECT_FALSE(at::allclose(run_steps({.start_iteration = 0}, 1, gradient_of)[0], mean));
}

TEST(PowerSgd, ZeroGradientsStayZeroAndDoNotStopLaterOnes) {
  torch::manual_seed(7);
  const at::Tensor later = at::mm(at::randn({12, 1}), at::randn({1, 10}));
  const Tensors results = run_steps(at_once(1), 3, [&](int, int step) {
    return step < 2 ? at::zeros({12, 10}) : later;
  });
  EXPECT_TRUE(at::equal(results[1], at::zeros({12, 10})));
  EXPECT_TRUE(at::allclose(results[2], later, 1e-4, 1e-5));
}

TEST(PowerSgd, ANonFiniteGradientSpoilsItsStepAndNoOther) {
  torch::manual_seed(8);
  const at::Tensor good = at::mm(at::randn({12, 1}), at::randn({1, 10}));
  for (float value : {kInf, kNaN}) {
    const Tensors results = run_steps(at_once(1), 3, [&](int rank, int step) {
      at::Tensor gradient = good.clone();
      if (rank == 1 && step == 1) gradient[3][4] = value;
      return gradient;
    });
    EXPECT_TRUE(results[1].isnan().all().item<bool>());
    EXPECT_TRUE(at::allclose(results[2], good, 1e-4, 1e-5));
  }
}

TEST(PowerSgd, GradientsThatAreNotContiguousAndSeveralInABucket) {
  torch::manual_seed(9);
  Tensors matrices;
  Tensors bias;
  for (int r = 0; r < 2; ++r) {
    matrices.push_back(at::mm(at::ones({16, 1}) * (r + 1), at::arange(1, 13, at::kFloat).view({1, 12})));
    bias.push_back(at::full({16}, r + 1.0F));
  }
  on_ranks(2, [&](int rank, const Group& group) {
    const auto hook = power_sgd_hook(at_once(1));
    const at::Tensor buffer = at::empty({16 * 12 + 16 + 192});
    const at::Tensor transposed = buffer.narrow(0, 0, 192).view({12, 16}).t();  // a weight with strides of its own
    const at::Tensor vector = buffer.narrow(0, 192, 16);
    const at::Tensor plain = buffer.narrow(0, 208, 192).view({16, 12});
    const std::size_t r = static_cast<std::size_t>(rank);
    transposed.copy_(matrices[r]);
    vector.copy_(bias[r]);
    plain.copy_(matrices[r]);
    const Tensors gradients = {transposed, vector, plain};
    const Tensors parameters = {at::zeros({16, 12}), at::zeros({16}), at::zeros({16, 12})};
    testing::reduce_bucket(*hook, GradBucket(0, true, buffer, gradients, parameters), *group);
    const at::Tensor expected = (matrices[0] + matrices[1]) / 2;
    EXPECT_TRUE(at::allclose(transposed, expected, 1e-5));
    EXPECT_TRUE(at::allclose(plain, expected, 1e-5));
    EXPECT_TRUE(at::equal(vector, at::full({16}, 1.5F)));
  });
}

TEST(PostLocalSgd, AveragesOverAllThenOverTheSubgroup) {
  on_ranks(3, [](int rank, const Group& group) {
    const std::vector<int> members = rank < 2 ? std::vector<int>{0, 1} : std::vector<int>{2};
    const auto hook = post_local_sgd_hook({.start_step = 2, .subgroup = group->new_group(members, "")});
    const auto alone = post_local_sgd_hook({.start_step = 1});
    const at::Tensor own = at::full({8}, static_cast<float>(rank));
    const OneGradient bucket(own.sizes());
    for (int step = 0; step < 4; ++step) {
      const float in_group = rank < 2 ? 0.5F : 2.0F;
      EXPECT_EQ(bucket.reduce(*hook, own, *group)[3].item<float>(), step < 2 ? 1.0F : in_group) << step;
      EXPECT_EQ(bucket.reduce(*alone, own, *group)[3].item<float>(), step < 1 ? 1.0F : static_cast<float>(rank));
    }
  });
}

}  // namespace
}  // namespace lockstep
