// Compares the ranks' steps from time to time, and logs which rank the others wait for.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "lockstep/ddp/process_group.h"
#include "lockstep/record/straggler.h"
#include "record/step_clock.h"

namespace lockstep::detail {

// Used by one thread at a time.
class StragglerWatch {
 public:
  // `clock` must outlive this. `parameters(bucket)` describes what a bucket has. `interval`: 0 or less: never.
  StragglerWatch(std::shared_ptr<ProcessGroup> group, const record::StepClock& clock,
                 std::function<std::string(std::size_t)> parameters, std::chrono::milliseconds interval)
      : group_(std::move(group)), clock_(clock), parameters_(std::move(parameters)), interval_(interval) {}

  // Collective: gathers the latest steps of all ranks. The same report on all ranks. Throws Error.
  StragglerReport compare() const;
  // After every step. Compares at steps on which all ranks agree without communicating: each comparison determines the
  // next one from the step time that it found. Rank 0 logs a straggler that costs more than a tenth.
  void after_step();

 private:
  const std::shared_ptr<ProcessGroup> group_;
  const record::StepClock& clock_;
  const std::function<std::string(std::size_t)> parameters_;
  const std::chrono::milliseconds interval_;
  std::uint64_t next_ = 50;  // the step after which to compare
};

}  // namespace lockstep::detail
