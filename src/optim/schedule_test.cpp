#include "lockstep/optim/schedule.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "lockstep/base/status.h"
#include "optim/exact_math.h"

namespace lockstep {
namespace {

struct TorchSchedule {
  std::string name;
  Schedule schedule;
  std::vector<double> rates;
};

TEST(ScheduleTest, HasTheValuesOfPyTorchsSchedulers) {
  const std::vector<TorchSchedule> cases = {
#include "optim/testing/torch_schedules.inc"
  };
  ASSERT_GT(cases.size(), 60u);
  for (const TorchSchedule& c : cases) {
    for (std::size_t step = 0; step < c.rates.size(); ++step) {
      // PyTorch computes most of these step by step, and so adds up rounding errors.
      EXPECT_NEAR(c.schedule(static_cast<std::int64_t>(step)), c.rates[step], 1e-12) << c.name << " at step " << step;
    }
  }
}

TEST(ScheduleTest, WarmsUpThenDecaysThenStays) {
  const Schedule cosine = schedule::cosine({.warmup_steps = 10, .total_steps = 110, .final_factor = 0.2});
  EXPECT_EQ(cosine(0), 0);
  EXPECT_EQ(cosine(5), 0.5);
  EXPECT_EQ(cosine(10), 1);
  EXPECT_DOUBLE_EQ(cosine(60), 0.6);
  EXPECT_EQ(cosine(110), 0.2);
  EXPECT_EQ(cosine(1'000'000'000'000), 0.2);
  EXPECT_EQ(schedule::constant()(7), 1);
  EXPECT_EQ(schedule::linear({.total_steps = 4})(1), 0.75);
}

TEST(ScheduleTest, IsAFunctionOfTheStepAlone) {
  const Schedule one = schedule::one_cycle({.total_steps = 100});
  const double before = one(37);
  for (std::int64_t step = 99; step >= 0; --step) (void)one(step);
  const Schedule copy = one;
  EXPECT_EQ(copy(37), before);
}

template <typename Function>
void expect_invalid(Function make, const std::string& words) {
  try {
    make();
    FAIL() << "not refused: " << words;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), StatusCode::invalid_argument);
    EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << error.what();
  }
}

TEST(ScheduleTest, RefusesWhatMakesNoSense) {
  expect_invalid([] { return schedule::cosine({.warmup_steps = 10, .total_steps = 10}); }, "total_steps is 10");
  expect_invalid([] { return schedule::linear({}); }, "schedule::linear");
  expect_invalid([] { return schedule::polynomial({.power = 0, .total_steps = 5}); }, "power is 0");
  expect_invalid([] { return schedule::step_decay({}); }, "every is 0");
  expect_invalid([] { return schedule::multi_step({.milestones = {5, 3}}); }, "increasing");
  expect_invalid([] { return schedule::one_cycle({}); }, "total_steps");
  expect_invalid([] { return schedule::chained({}); }, "no schedule");
  expect_invalid([] { return schedule::sequential({schedule::constant()}, {3}); }, "milestones");
  expect_invalid([] { return schedule::constant()(-1); }, "step is -1");
}

// Within a few units in the last place of the C library's, whose own results differ between processors.
TEST(ExactMathTest, AgreesWithTheCLibrary) {
  for (int i = 0; i <= 10'000; ++i) {
    const double x = i / 10'000.0;
    EXPECT_NEAR(optim::cos_pi(x), std::cos(M_PI * x), 4e-16) << x;
    for (double exponent : {0.1, 0.5, 0.9, 1.0, 1.7, 2.0, 2.5, 10.3}) {
      const double want = std::pow(x, exponent);
      EXPECT_NEAR(optim::real_power(x, exponent), want, 1e-14 * want) << x << "^" << exponent;
    }
  }
  for (std::int64_t n : {0, 1, 2, 3, 1000, 123'456}) {
    const double want = std::pow(0.9999, static_cast<double>(n));
    EXPECT_NEAR(optim::integer_power(0.9999, n), want, 1e-11 * want);
  }
}

// Any change of these bits makes replicas of different versions drift apart.
TEST(ExactMathTest, HasFixedBits) {
  double sum = 0;
  for (int i = 0; i <= 1000; ++i) sum += optim::cos_pi(i / 1000.0) * optim::real_power(i / 1000.0, 0.9);
  EXPECT_EQ(sum, -0x1.8dc62fd9f44ecp+7) << std::hexfloat << sum;
}

}  // namespace
}  // namespace lockstep
