// Averages models instead of gradients, every few steps. Together with post_local_sgd_hook: post-local SGD.
//
//   ddp.register_comm_hook(lockstep::post_local_sgd_hook({.start_step = 100}));
//   lockstep::PeriodicModelAverager averager({.period = 4, .warmup_steps = 100});
//   ...
//   optimizer.step();
//   averager.average_parameters(ddp->parameters());
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "lockstep/ddp/process_group.h"

namespace lockstep {

struct ModelAveragerOptions {
  // Steps between two averages; 1 or more.
  std::int64_t period = 1;
  // Steps before the first average.
  std::int64_t warmup_steps = 0;
  // Null: the default group.
  std::shared_ptr<ProcessGroup> group = nullptr;
};

// Not thread-safe. Every rank calls average_parameters() once per step, with the same parameters in the
// same order.
class PeriodicModelAverager {
 public:
  // Throws Error if an option is out of range or there is no group.
  explicit PeriodicModelAverager(const ModelAveragerOptions& options = {});

  // Call number k (from 0) replaces the parameters by their average over the group, the same bits on all
  // ranks, if k >= warmup_steps and k - warmup_steps is a multiple of period; returns whether it did. Blocks
  // until done; throws Error if the group failed.
  bool average_parameters(const std::vector<at::Tensor>& parameters);
  // Calls so far.
  std::int64_t step() const { return step_; }

 private:
  const std::int64_t period_;
  const std::int64_t warmup_steps_;
  const std::shared_ptr<ProcessGroup> group_;
  std::int64_t step_ = 0;
};

}  // namespace lockstep
