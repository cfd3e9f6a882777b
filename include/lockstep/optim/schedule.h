// Learning-rate schedules: pure functions of the step.
//
//   const auto schedule = lockstep::schedule::cosine({.warmup_steps = 500, .total_steps = 10'000, .final_factor =
//   0.1}); schedule(0)       // the factor for the first step: the optimizer's learning rate is multiplied by it
//
// A schedule has no state: what a run needs to continue is the number of the step, which snapshots and elastic jobs
// carry anyway. A process that joins late, or that resumes, therefore has the learning rate of all others. Schedules
// return the same bits on every machine (the C library's cos and pow do not), so that replicas stay equal.
// lockstep::LearningRate (lockstep/ddp/learning_rate.h) applies one to an optimizer.
//
// Steps count from 0. Values are factors of the learning rate with which the optimizer was made, its peak as a rule.
// Invalid options throw Error (invalid_argument). Schedules are cheap to copy, and calls are thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace lockstep {

class Schedule {
 public:
  // A function of your own; it must return the same value for the same step, in every process.
  explicit Schedule(std::function<double(std::int64_t step)> function);
  // The factor for this step. Throws Error (invalid_argument) if step is negative.
  double operator()(std::int64_t step) const;

 private:
  std::shared_ptr<const std::function<double(std::int64_t)>> function_;
};

namespace schedule {

// Warm-up, for all schedules that have it: the factor grows linearly from warmup_start at step 0 to the schedule's
// first value at step warmup_steps, where the schedule proper begins.

struct ConstantOptions {
  double factor = 1;
  std::int64_t warmup_steps = 0;
  double warmup_start = 0;
};
Schedule constant(const ConstantOptions& options = {});

// From 1 at the end of the warm-up straight to final_factor at total_steps, and constant from then on.
struct LinearOptions {
  std::int64_t warmup_steps = 0;
  std::int64_t total_steps = 0;  // required; the warm-up included
  double final_factor = 0;
  double warmup_start = 0;
};
Schedule linear(const LinearOptions& options);

// As linear(), along half a cosine. torch: CosineAnnealingLR with T_max = total_steps - warmup_steps.
struct CosineOptions {
  std::int64_t warmup_steps = 0;
  std::int64_t total_steps = 0;  // required; the warm-up included
  double final_factor = 0;
  double warmup_start = 0;
};
Schedule cosine(const CosineOptions& options);

// As linear(), along (1 - progress)^power. torch: PolynomialLR.
struct PolynomialOptions {
  double power = 1;
  std::int64_t warmup_steps = 0;
  std::int64_t total_steps = 0;  // required; the warm-up included
  double final_factor = 0;
  double warmup_start = 0;
};
Schedule polynomial(const PolynomialOptions& options);

// Cosines from 1 to final_factor that start again and again; each is `multiplier` times as long as the one before.
// torch: CosineAnnealingWarmRestarts.
struct CosineRestartsOptions {
  std::int64_t period = 0;  // of the first; required
  std::int64_t multiplier = 1;
  double final_factor = 0;
};
Schedule cosine_restarts(const CosineRestartsOptions& options);

// Multiplied by gamma every `every` steps. torch: StepLR.
struct StepDecayOptions {
  std::int64_t every = 0;  // required
  double gamma = 0.1;
};
Schedule step_decay(const StepDecayOptions& options);

// Multiplied by gamma at each milestone. torch: MultiStepLR.
struct MultiStepOptions {
  std::vector<std::int64_t> milestones = {};  // in increasing order
  double gamma = 0.1;
};
Schedule multi_step(const MultiStepOptions& options);

// gamma^step. torch: ExponentialLR.
struct ExponentialOptions {
  double gamma = 1;
};
Schedule exponential(const ExponentialOptions& options);

// Up from 1 / div_factor to 1, then down to 1 / (div_factor * final_div_factor). torch: OneCycleLR, whose max_lr is the
// optimizer's learning rate here; it changes the momentum, too, which this does not.
struct OneCycleOptions {
  std::int64_t total_steps = 0;  // required
  double warmup_fraction = 0.3;  // torch's pct_start
  double div_factor = 25;
  double final_div_factor = 1e4;
  bool linear = false;       // straight lines instead of cosines
  bool three_phase = false;  // down to 1 / div_factor as fast as up, then to the end
};
Schedule one_cycle(const OneCycleOptions& options);

// The product of all. torch: ChainedScheduler.
Schedule chained(std::vector<Schedule> schedules);
// schedules[0] until the first milestone, where schedules[1] begins at its step 0, and so on. torch: SequentialLR.
// One milestone fewer than schedules, in increasing order.
Schedule sequential(std::vector<Schedule> schedules, std::vector<std::int64_t> milestones);

}  // namespace schedule
}  // namespace lockstep
