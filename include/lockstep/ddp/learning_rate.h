// Applies a schedule (lockstep/optim/schedule.h) to the learning rates of any optimizer.
//
//   torch::optim::AdamW optimizer(parameter_groups, 3e-3);
//   lockstep::LearningRate rate(optimizer, lockstep::schedule::cosine({.warmup_steps = 500, .total_steps = 10'000}));
//   for (std::int64_t step = 0; step < 10'000; ++step) {
//     ...
//     rate.apply(step);
//     optimizer.step();
//   }
//
// The rate of every parameter group becomes its base rate times schedule(step); the base rate is the one that the group
// had when the LearningRate was made. Nothing has to be saved but the step: with a snapshot, rate.apply(state.step); in
// an elastic job, context.step(optimizer, rate). So a run that was resumed, and a process that has just joined,
// continue with the right rate.
//
// Make it before a snapshot is loaded and outside of elastic::run: both replace the rates by those of a later step.
#pragma once

#include <torch/optim/optimizer.h>

#include <cstdint>
#include <vector>

#include "lockstep/optim/schedule.h"

namespace lockstep {

// Not thread-safe. The optimizer must outlive it.
class LearningRate {
 public:
  // Throws Error (invalid_argument) inside elastic::run.
  LearningRate(torch::optim::Optimizer& optimizer, Schedule schedule);
  // With these base rates, one for each parameter group, wherever and whenever it is made.
  LearningRate(torch::optim::Optimizer& optimizer, Schedule schedule, std::vector<double> base_rates);

  // Sets the rates for this step; call it before optimizer.step(). Groups that were added since have their rate at the
  // first call as base rate. Depends on nothing but the step. Throws Error if step is negative.
  void apply(std::int64_t step);

  const std::vector<double>& base_rates() const { return base_rates_; }
  const Schedule& schedule() const { return schedule_; }

 private:
  void add_new_groups();

  torch::optim::Optimizer& optimizer_;
  Schedule schedule_;
  std::vector<double> base_rates_;
};

}  // namespace lockstep
