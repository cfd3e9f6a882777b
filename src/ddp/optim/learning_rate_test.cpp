#include "lockstep/ddp/learning_rate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "checkpoint/testing/test_folder.h"
#include "ddp/elastic/running.h"
#include "lockstep/base/status.h"
#include "lockstep/checkpoint/snapshot.h"

namespace lockstep::learning_rate_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<double> rates_of(torch::optim::Optimizer& optimizer) {
  std::vector<double> rates;
  for (auto& group : optimizer.param_groups()) rates.push_back(group.options().get_lr());
  return rates;
}

torch::optim::OptimizerParamGroup group_with(double lr) {
  return {{torch::ones({2}).requires_grad_()}, std::make_unique<torch::optim::AdamOptions>(lr)};
}

TEST(LearningRateTest, MultipliesTheBaseRateOfEachGroup) {
  torch::optim::Adam optimizer({group_with(0.5), group_with(0.25)});
  LearningRate rate(optimizer, schedule::linear({.total_steps = 4}));
  rate.apply(2);
  EXPECT_THAT(rates_of(optimizer), ElementsAre(0.25, 0.125));
  rate.apply(2);  // not cumulative
  EXPECT_THAT(rates_of(optimizer), ElementsAre(0.25, 0.125));
  rate.apply(0);
  EXPECT_THAT(rates_of(optimizer), ElementsAre(0.5, 0.25));
  optimizer.add_param_group(group_with(0.125));
  rate.apply(3);
  EXPECT_THAT(rates_of(optimizer), ElementsAre(0.125, 0.0625, 0.03125));
  EXPECT_THAT(rate.base_rates(), ElementsAre(0.5, 0.25, 0.125));
  EXPECT_THROW(rate.apply(-1), Error);
}

TEST(LearningRateTest, ContinuesAfterASnapshotWithNothingButTheStep) {
  const checkpoint::testing::TestFolder folder;
  torch::nn::Linear model(2, 2);
  checkpoint::Snapshots snapshots(folder.path(), {.alone = true});
  const Schedule schedule = schedule::cosine({.warmup_steps = 3, .total_steps = 20});
  {
    torch::optim::Adam optimizer(model->parameters(), 0.5);
    LearningRate rate(optimizer, schedule);
    checkpoint::State state{.model = *model, .optimizer = optimizer};
    for (; state.step < 7; ++state.step) rate.apply(state.step);
    snapshots.save(state);
  }
  torch::optim::Adam optimizer(model->parameters(), 0.5);
  LearningRate rate(optimizer, schedule);
  checkpoint::State state{.model = *model, .optimizer = optimizer};
  ASSERT_TRUE(snapshots.load(state).has_value());
  rate.apply(state.step);
  EXPECT_THAT(rates_of(optimizer), ElementsAre(0.5 * schedule(7)));
}

TEST(LearningRateTest, NeedsItsBaseRatesInsideAnElasticJob) {
  torch::optim::Adam optimizer({group_with(0.5)});
  const detail::ElasticRunning running;
  try {
    LearningRate rate(optimizer, schedule::constant());
    FAIL() << "not refused";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("before elastic::run"));
  }
  LearningRate rate(optimizer, schedule::linear({.total_steps = 2}), {4.0});
  rate.apply(1);
  EXPECT_THAT(rates_of(optimizer), ElementsAre(2.0));
  EXPECT_THROW(LearningRate(optimizer, schedule::constant(), {1.0, 2.0}), Error);
}

}  // namespace
}  // namespace lockstep::learning_rate_test
