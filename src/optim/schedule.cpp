#include "lockstep/optim/schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "lockstep/base/status.h"
#include "optim/exact_math.h"

namespace lockstep {
namespace {

void check(bool valid, const char* schedule, const std::string& what) {
  if (!valid) throw Error({StatusCode::invalid_argument, fmt::format("schedule::{}: {}", schedule, what)});
}

// The options that linear(), cosine() and polynomial() share.
template <typename Options>
void check_span(const Options& options, const char* schedule) {
  check(options.warmup_steps >= 0 && options.total_steps > options.warmup_steps, schedule,
        fmt::format("total_steps is {} and warmup_steps {}; total_steps includes the warm-up and must be greater",
                    options.total_steps, options.warmup_steps));
  check(std::isfinite(options.final_factor) && std::isfinite(options.warmup_start), schedule,
        "final_factor and warmup_start must be finite");
}

// Linear warm-up, then decay(progress) between 1 and final_factor; decay falls from 1 at progress 0 to 0 at 1.
template <typename Options, typename Decay>
Schedule with_warmup(const Options& options, Decay decay) {
  return Schedule([options, decay](std::int64_t step) {
    const std::int64_t warmup = options.warmup_steps;
    if (step < warmup) {
      return options.warmup_start +
             (1 - options.warmup_start) * (static_cast<double>(step) / static_cast<double>(warmup));
    }
    const std::int64_t length = options.total_steps - warmup;
    if (step - warmup >= length) return options.final_factor;
    const double progress = static_cast<double>(step - warmup) / static_cast<double>(length);
    return options.final_factor + (1 - options.final_factor) * decay(progress);
  });
}

double cosine_decay(double progress) { return 0.5 * (1 + optim::cos_pi(progress)); }

bool increasing(const std::vector<std::int64_t>& steps) {
  return std::is_sorted(steps.begin(), steps.end()) && (steps.empty() || steps.front() >= 0);
}

}  // namespace

Schedule::Schedule(std::function<double(std::int64_t step)> function)
    : function_(std::make_shared<const std::function<double(std::int64_t)>>(std::move(function))) {
  check(static_cast<bool>(*function_), "Schedule", "the function is empty");
}

double Schedule::operator()(std::int64_t step) const {
  check(step >= 0, "Schedule", fmt::format("step is {}; steps count from 0", step));
  return (*function_)(step);
}

namespace schedule {

Schedule constant(const ConstantOptions& options) {
  check(options.warmup_steps >= 0, "constant",
        fmt::format("warmup_steps is {}; it must not be negative", options.warmup_steps));
  return Schedule([options](std::int64_t step) {
    if (step >= options.warmup_steps) return options.factor;
    const double progress = static_cast<double>(step) / static_cast<double>(options.warmup_steps);
    return options.warmup_start + (options.factor - options.warmup_start) * progress;
  });
}

Schedule linear(const LinearOptions& options) {
  check_span(options, "linear");
  return with_warmup(options, [](double progress) { return 1 - progress; });
}

Schedule cosine(const CosineOptions& options) {
  check_span(options, "cosine");
  return with_warmup(options, cosine_decay);
}

Schedule polynomial(const PolynomialOptions& options) {
  check_span(options, "polynomial");
  check(options.power > 0 && std::isfinite(options.power), "polynomial",
        fmt::format("power is {}; it must be more than 0", options.power));
  return with_warmup(options,
                     [power = options.power](double progress) { return optim::real_power(1 - progress, power); });
}

Schedule cosine_restarts(const CosineRestartsOptions& options) {
  check(options.period > 0 && options.multiplier >= 1, "cosine_restarts",
        fmt::format("period is {} and multiplier {}; both must be at least 1", options.period, options.multiplier));
  return Schedule([options](std::int64_t step) {
    std::int64_t length = options.period;
    if (options.multiplier == 1) step %= length;
    while (step >= length) {
      step -= length;
      length *= options.multiplier;
    }
    const double decay = cosine_decay(static_cast<double>(step) / static_cast<double>(length));
    return options.final_factor + (1 - options.final_factor) * decay;
  });
}

Schedule step_decay(const StepDecayOptions& options) {
  check(options.every > 0, "step_decay", fmt::format("every is {}; it must be at least 1", options.every));
  return Schedule([options](std::int64_t step) { return optim::integer_power(options.gamma, step / options.every); });
}

Schedule multi_step(const MultiStepOptions& options) {
  check(increasing(options.milestones), "multi_step", "milestones must be in increasing order, from 0");
  return Schedule([options](std::int64_t step) {
    const auto passed = std::upper_bound(options.milestones.begin(), options.milestones.end(), step);
    return optim::integer_power(options.gamma, passed - options.milestones.begin());
  });
}

Schedule exponential(const ExponentialOptions& options) {
  return Schedule([gamma = options.gamma](std::int64_t step) { return optim::integer_power(gamma, step); });
}

Schedule one_cycle(const OneCycleOptions& options) {
  check(options.total_steps > 1, "one_cycle",
        fmt::format("total_steps is {}; it must be at least 2", options.total_steps));
  check(options.warmup_fraction > 0 && options.warmup_fraction < 1, "one_cycle",
        fmt::format("warmup_fraction is {}; it must be between 0 and 1", options.warmup_fraction));
  check(options.div_factor > 0 && options.final_div_factor > 0, "one_cycle",
        "div_factor and final_div_factor must be more than 0");
  return Schedule([options](std::int64_t step) {
    const double last = static_cast<double>(options.total_steps) - 1;
    const double now = std::min(static_cast<double>(step), last);
    const double first = 1 / options.div_factor;
    const double final = first / options.final_div_factor;
    const double top = options.warmup_fraction * static_cast<double>(options.total_steps) - 1;
    const double down = options.three_phase ? 2 * top : last;  // where the second phase ends
    const auto between = [&](double from, double to, double start, double end) {
      const double progress = end > start ? std::clamp((now - start) / (end - start), 0.0, 1.0) : 1;
      return to + (from - to) * (options.linear ? 1 - progress : cosine_decay(progress));
    };
    if (now <= top) return between(first, 1, 0, top);
    if (now <= down) return between(1, options.three_phase ? first : final, top, down);
    return between(first, final, down, last);
  });
}

Schedule chained(std::vector<Schedule> schedules) {
  check(!schedules.empty(), "chained", "there is no schedule");
  return Schedule([schedules = std::move(schedules)](std::int64_t step) {
    double product = 1;
    for (const Schedule& schedule : schedules) product *= schedule(step);
    return product;
  });
}

Schedule sequential(std::vector<Schedule> schedules, std::vector<std::int64_t> milestones) {
  check(schedules.size() == milestones.size() + 1, "sequential",
        fmt::format("{} schedules need {} milestones, not {}", schedules.size(),
                    schedules.empty() ? 0 : schedules.size() - 1, milestones.size()));
  check(increasing(milestones), "sequential", "milestones must be in increasing order, from 0");
  return Schedule([schedules = std::move(schedules), milestones = std::move(milestones)](std::int64_t step) {
    const auto passed = std::upper_bound(milestones.begin(), milestones.end(), step) - milestones.begin();
    const std::int64_t start = passed == 0 ? 0 : milestones[static_cast<std::size_t>(passed) - 1];
    return schedules[static_cast<std::size_t>(passed)](step - start);
  });
}

}  // namespace schedule
}  // namespace lockstep
